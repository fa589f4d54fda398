package lease

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Each condition is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "../past.go", []machinetest.Edit{
		// The last word.
		{"any claim ends the wait", "found && w.Lent[i] == loan {", "found {", "TestLastWord"},
		{"the claim of another member ends the wait", "f.Node == node {\n			f.Parting.End", "true {\n			f.Parting.End", "TestLastWord"},
		{"told loans come back", "slices.DeleteFunc(slices.Clone(w.Lent)", "slices.DeleteFunc(w.Lent", "TestLastWord"},
		{"a word that is over is told", "return l.Key == \"\" })}", "return false })}", "TestLastWord"},
		{"what one of two leaves", "if other.Key(l.Lock) != \"\" {", "if true {", "TestLastWord"},
		{"what acts changes", "	p.Former = slices.Clone(p.Former)\n	for i := range p.Former {\n		p.Former[i].Parting = p.Former[i].Parting.Rest()\n	}\n", "", "TestLastWord"},
		{"unordered", "w.Lent[i-1].Lock >= w.Lent[i].Lock", "false", "TestPastBounds"},
	})
	machinetest.Kill(t, "../carryover/past.go", []machinetest.Edit{
		{"a last word frees nothing", "f.Parting != nil && f.Parting.Key(lock) == \"\" ||", "", "TestLastWord"},
		{"what is lent is free", "f.Parting != nil && f.Parting.Key(lock) == \"\"", "f.Parting != nil", "TestLastWord"},
		{"a false claim is believed", "f.Parting.Key(loan.Lock) != loan.Key", "false", "TestLastWord"},
		{"every claim is refuted", "f.Parting.Key(loan.Lock) != loan.Key", "true", "TestLastWord"},
		{"refutes without a word", "f.Node == node && f.Parting != nil && f.Parting.Key(loan", "f.Node == node && f.Parting.Key(loan", "TestLastWord"},
	})
	machinetest.Kill(t, "memory.go", []machinetest.Edit{
		{"tells a brief word", "a.told <= own.Epoch && !own.Brief {", "a.told <= own.Epoch {", "TestBriefWord"},
		{"the word of another member", "		if m.met[i].node == node {\n			m.met[i].parting", "		if true {\n			m.met[i].parting", "TestLastWord"},
		{"only one has the word", "f.Parting.And(p.Former[i].Parting)", "f.Parting", "TestLastWord"},
		{"it has nothing, and is waited for", "f.Epoch <= cleared || f.Parting != nil && len(f.Parting.Lent) == 0:", "f.Epoch <= cleared:", "TestLastWord"},
		{"blind with a last word", "case f.Parting != nil || slices.ContainsFunc(all.Words", "case slices.ContainsFunc(all.Words", "TestLastWord"},
		{"no bound", "p.Former[i].Parting = nil\n", "\n", "TestLastWord"},
		{"frees of an acquaintance", "		if a.node == node {\n			a.parting.End", "		if true {\n			a.parting.End", "TestLastWord"},
		{"frees in no report to come", "			a.parting.End(loan)\n", "", "TestPartsAndMoves"},
		{"frees in no view that acts", "	m.past.Free(node, loan)\n", "", "TestLastWord"},
	})
	machinetest.Kill(t, "lease.go", []machinetest.Edit{
		{"keeps a brief word", "m.own = *word // it", "_ = *word // it", "TestBriefWord"},
		{"needs no word", "return slices.ContainsFunc(m.met, func(a acquaintance) bool { return a.gone > m.cleared })", "return false", "TestBriefWord"},
		{"moves in silence", "	m.in.Emit(Freed{", "	_ = (Freed{", "TestPartsAndMoves"},
		{"moves past the reports", "			r.Past.Free(former, loan)\n", "", "TestPartsAndMoves"},
		{"leaves with loans as without", "leaves && m.holding {", "false {", "TestLeaveHolding"},
		{"an exclusion that is none of its own", "if gone || leaves && m.holding", "if gone || leaves", "TestLeaveHolding"},

		// Rule 5.5: no life joins twice.
		{"joins twice", "was != dmutex.None || m.missed(&r), m.misfit", "was != dmutex.None, m.misfit", "TestUnknownJoinIsMissed"},
	})
	machinetest.Kill(t, "phase.go", []machinetest.Edit{
		{"deaf to a last word", "	m.parts(p.node, &membership.Parting{Lent: msg.Lent})\n", "", "TestPartsAndMoves"},
		{"deaf to a move", "	m.freed(msg.Former, msg.Lent[0])\n", "", "TestPartsAndMoves"},
	})
	machinetest.Kill(t, "operate.go", []machinetest.Edit{
		{"forgets an unknown join", "			m.asked = number // the join may have been done\n", "", "TestUnknownJoinIsMissed"},

		// Rule 5.6: a store that has begun anew.
		{"a forgotten life goes on", "if *m = fresh; spent {", "if *m = fresh; spent && m.ended() {", "TestForgotten"},
		{"a forgotten life that may have joined goes on", "spent := m.self != dmutex.None || m.asked != dmutex.None", "spent := m.self != dmutex.None", "TestForgottenBeforeItJoins"},
		{"what was cleared stays so", "clearing: clearing{drain: m.drain, wait: m.drain}", "clearing: m.clearing", "TestForgottenEpochs"},
		{"fences fall", "fresh.cfg.Fence = max(m.cfg.Fence, epochs.Last(m.record.Epoch))", "fresh.cfg.Fence = max(m.cfg.Fence, 0*epochs.Last(m.record.Epoch))", "TestForgotten"},
		{"a longer lease may run", "fresh.joinAt = max(m.joinAt, now+leases.Drain(m.record.Lease))", "_ = leases.Drain", "TestForgottenBeforeItJoins"},
		{"numbers are given twice", "given: max(m.given, m.record.Highest, m.asked), ", "", "TestForgotten"},
		{"forgets that it leaves", "leaving: m.leaving, ", "", "TestForgottenWhileItLeaves"},
	})
	machinetest.Kill(t, "rejoining.go", []machinetest.Edit{
		{"missed, not given", "j.asked == dmutex.None || r.Highest < j.asked", "j.asked == dmutex.None", "TestMissed"},
		{"missed, another has it", "return e.Node == j.asked }", "return false }", "TestMissed"},
		{"missed, another had it", "		j.asked = dmutex.None // and", "		// and", "TestMissed"},
		{"missed again", "j.spent, j.asked = true, dmutex.None", "j.spent = true", "TestMissed"},
	})
}
