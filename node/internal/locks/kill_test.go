package locks

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Each condition is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "waiter.go", []machinetest.Edit{
		{"a claim's request serves the next", "w.Claims != nil || l.shares() != l.waiters[0].Shares)", "l.shares() != l.waiters[0].Shares)", "TestClaimServesNobodyElse"},
		{"the next asks in the mode of the last", " || l.shares() != l.waiters[0].Shares) {", ") {", "TestWriterGivesUp"},
		{"the next is not asked for", "		l.settle() // the next", "		// the next", "TestWriterBeforeFormerGivesUp"},
		{"a given up grant is kept", "		l.leave(w.held, released)\n", "", "TestClaimServesNobodyElse"},
		{"claims to share", "return !w.Shares && !l.isHeld()", "return !l.isHeld()", "TestClaimRefused"},
		{"claims what this node has", "!w.Shares && !l.isHeld() && l.in(dmutex.Idle)", "!w.Shares", "TestClaimRefused"},
		{"claims before a lease", "l.in(dmutex.Idle) && t.grants() &&", "l.in(dmutex.Idle) &&", "TestClaimRefused"},
		{"claims behind a sharer", " && !l.turns() && ", " && ", "TestClaimBehindSharer"},
		{"claims of anybody", " && carryover.MayClaim(w.Claims, t.start.Members, l.former()) &&", " &&", "TestClaimRefused"},
		{"claims falsely", "!t.past.Refutes(w.Claims[len(w.Claims)-1], membership.Loan{Lock: l.name, Key: w.Key})", "true", "TestClaimRefused"},
	})
	machinetest.Kill(t, "waiter.go", []machinetest.Edit{
		{"leaves those that come before a view acts", "			t.waiting[l.name] = struct{}{}\n", "			_ = t\n", "TestWaitsForTheNextView"},
	})
	machinetest.Kill(t, "lock.go", []machinetest.Edit{
		{"a claim outlives its view", "return w.Try || w.Claims != nil", "return w.Try", "TestClaimEndsWithItsView"},
		{"waits for no former", "(l.waits() || l.turns()) ||", "l.turns() ||", "TestClaimServesNobodyElse"},
		{"a word about another view", "t.word != nil && t.word.Epoch == l.epoch {", "t.word != nil {", "TestMachineOfAnEarlierView"},
		{"an earlier view's machine lives", "l.table.acts(l.epoch) }", "l.table.acting }", "TestMachineOfAnEarlierView"},
		{"a claim waits for its former", "l.waiters[0].Claims == nil && (l.waits()", "true && (l.waits()", "TestClaimServesNobodyElse"},
	})
	machinetest.Kill(t, "table.go", []machinetest.Edit{
		{"given back by an earlier operation", "return !u.over.After(sent) })", "return true })", "TestReturn"},
		{"what is free before a view acts", "		t.free(f)\n	}\n	names", "		_ = f\n	}\n	names", "TestFreed"},
		{"what was given back meanwhile stays", "carried.Contested(), t.returned)", "carried.Contested())", "TestReleasedBeforeTheViewActs"},
		{"what is overruled stays", "slices.Concat(carried.Contested(), t.returned)", "t.returned", "TestOverruled"},
		{"leaves those that wait", "			t.waiting[l.name] = struct{}{}\n		}\n	}\n	if t.epoch", "		}\n	}\n	if t.epoch", "TestWaitsForTheNextView"},
		{"acts without members", " || t.start.Self == dmutex.None {", " {", "TestActAfterExclusion"},
		{"gives back what lapses later", "why.lapse <= lapses &&", "true &&", "TestGiveBackOfOneLapse"},
	})
	machinetest.Kill(t, "past.go", []machinetest.Edit{
		{"knows no holders that are unborn", "would = t.birth(w, home, carried)", "would = t.birth(w, home, &free)", "TestUnbornKnowsTheSame"},
		{"goes through no holders that are unborn", "for name, carried := range unborn.All() {", "for name, carried := range unborn.All() {\n		break", "TestUnbornKnowsTheSame"},
		{"keeps nothing for the next view", "			t.freed = append(t.freed, f)\n", "", "TestFreed"},
		{"keeps without a bound", "if len(t.freed) < keepFreed {", "if true {", "TestFreed"},
		{"free, and not asked for", "		l.settle()\n	}\n}\n\nfunc (t *Table) free", "	}\n}\n\nfunc (t *Table) free", "TestFreed"},
	})
	machinetest.Kill(t, "held.go", []machinetest.Edit{
		{"returned earlier, if lost twice", "u.lent && !u.lost {", "u.lent {", "TestLostTwice"},
		{"what is lent to share has its key", "case h.lock.shared:\n			loans = append(loans, membership.Loan{Lock: h.lock.name, Key: sharedKey})", "case h.lock.shared:\n			loans = append(loans, membership.Loan{Lock: h.lock.name, Key: u.key})", "TestLoans"},
		{"tells of what is not lent", "case !u.lent:\n		case", "case", "TestLoans"},
		{"loans in no order", "	slices.SortFunc(loans, func(a, b membership.Loan) int { return strings.Compare(a.Lock, b.Lock) })\n	return slices.Compact(loans)", "	_ = strings.Compare\n	return slices.Compact(loans)", "TestLoans"},
	})
}
