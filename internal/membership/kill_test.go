package membership

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Each condition is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "consent.go", []machinetest.Edit{
		// Inputs.
		{"met, ended", "if m.ended != Outside { // it only hears p", "if false {", "TestRules"},
		{"met, exit", "if m.exit.Has(peer, life) {", "if false {", "TestRules"},
		{"gone, promise", "p.promise, p.asked, p.timed = nil, 0, 0", "p.asked, p.timed = 0, 0", "TestRules"},
		{"gone, asked", "p.promise, p.asked, p.timed = nil, 0, 0", "p.promise, p.timed = nil, 0", "TestRules"},
		{"begins below the clock", "max(m.highest+1, m.seen+1, m.clock)", "max(m.highest+1, m.seen+1)", "TestRules"},
		{"begins at what was seen", "max(m.highest+1, m.seen+1, m.clock)", "max(m.highest+1, m.seen, m.clock)", "TestRules"},
		{"pauses no longer", "<<m.fails\n", "\n", "TestRules"},

		{"met, not reported", "m.view.Has(peer, life) && m.reported", "m.view.Has(peer, life)", "TestRules"},
		{"trouble, epoch", "m.ended == Outside && epoch == m.view.Epoch && !m.trouble", "m.ended == Outside && !m.trouble", "TestRules"},
		{"trouble, twice", "epoch == m.view.Epoch && !m.trouble", "epoch == m.view.Epoch", "TestRules"},
		{"reports, ended", "m.ended == Outside && m.report(", "m.report(", "TestRules"},

		// Messages.
		{"handle, ended", "	if m.ended != Outside {\n		return m.flush(now), nil\n	}\n", "", "TestRules"},
		{"promise, round", "m.round == msg.Round && p.life == p.newest", "p.life == p.newest", "TestRules"},
		{"promise, newest", "m.round == msg.Round && p.life == p.newest", "m.round == msg.Round", "TestRules"},
		{"refuse, news", "		case m.round == 0:\n			p.news = true\n", "		case m.round == 0:\n", "TestRules"},
		{"learn, old", "if life <= p.newest {", "if life == p.newest {", "TestRules"},
		{"learn, ended", "m.later = life; m.ended == Outside {", "m.later = life; true {", "TestRules"},
		{"learn, exit", "	if m.exit.life(p.node) != 0 {\n		m.exit = View{}", "	if m.exit.life(p.node) != 0 {\n", "TestRules"},
		{"admonish, promise", "if p.promise = nil; !p.told", "if !p.told", "TestRules"},
		{"admonish, there", "p.life == 0 || p.life >= p.newest", "p.life >= p.newest", "TestRules"},
		{"admonish, hearsay", "!p.told && !m.view.Has(p.node, p.life)", "!p.told", "TestRules"},
		{"install, admonish", "		m.admonish(&m.members[i])\n", "", "TestRules"},
		{"promises in doubt", "msg.Round <= m.highest || m.inDoubt()", "msg.Round <= m.highest", "TestDoubt"},
		{"begins in doubt", "m.ended != Outside || m.inDoubt() || m.exit", "m.ended != Outside || m.exit", "TestDoubt"},
		{"installs in doubt", "v.Epoch >= m.highest && !m.inDoubt()", "v.Epoch >= m.highest", "TestDoubt"},
		{"prepare, bound", "p.bound, p.asked = p.life, msg.Round", "p.asked = msg.Round", "TestRules"},
		{"prepare, asked", "p.bound, p.asked = p.life, msg.Round", "p.bound = p.life", "TestRules"},
		{"prepare, open round", "if m.round != 0 || m.wants() {", "if m.wants() {", "TestRules"},

		// Rounds.
		{"wants, ended", "m.ended != Outside || m.inDoubt() ||", "m.inDoubt() ||", "TestRules"},
		{"wants, exit", "m.exit.Epoch > 0 && m.exit.Epoch >= max(m.highest, m.seen)", "false", "TestRules"},
		{"wants, later round", "m.exit.Epoch > 0 && m.exit.Epoch >= max(m.highest, m.seen)", "m.exit.Epoch > 0", "TestRules"},
		{"decides with the evicted", "u.promise != nil && !u.promise.passed(last)", "u.promise != nil", "TestRules"},
		{"decides twice", "	m.round = 0\n	if m.learnView(now, view);", "	if m.learnView(now, view);", "TestRules"},
		{"late, all leave", "last := !m.stays()", "last := false", "TestRules"},

		// Views.
		{"later view, open round", "if m.round != 0 && v.Epoch > m.round {", "if false {", "TestRules"},
		{"exit, older", "max(m.exit.Epoch, m.stayed)", "m.stayed", "TestRules"},
		{"exit, stayed", "max(m.exit.Epoch, m.stayed)", "m.exit.Epoch", "TestRules"},
		{"exit, of another round", " && (m.view.Epoch > 0 || v.Epoch == m.highest)", "", "TestRules"},
		{"exit, open round", "			m.exit = v\n			m.round = 0\n", "			m.exit = v\n", "TestExplore"},
		{"later view, ask", "	case m.view.Epoch > 0:\n		m.ask(now)", "	case m.view.Epoch > 0:\n", "TestRules"},
		{"enter, open round", "func (m *Machine) enter(now int64, v View) {\n	m.round = 0", "func (m *Machine) enter(now int64, v View) {", "TestRules"},
		{"enter, promised", "m.highest, m.trouble = max(m.highest, v.Epoch), false", "m.trouble = false", "TestRules"},
		{"complete, not asked", "if p.asked == m.highest && p.asked > m.view.Epoch {", "if false {", "TestRules"},
		{"complete, asked before", "if p.asked == m.highest && p.asked > m.view.Epoch {", "if p.asked > m.view.Epoch {", "TestRules"},
		{"complete, asked for this view", "if p.asked == m.highest && p.asked > m.view.Epoch {", "if p.asked == m.highest {", "TestRules"},
	})
	machinetest.Kill(t, "install.go", []machinetest.Edit{
		{"report, twice", "in.view.Epoch == 0 || in.reported", "in.view.Epoch == 0", "TestRules"},
		{"take, twice", "if in.reportOf(node).node != node {", "if true {", "TestRules"},
		{"complete, one lacks", "slices.ContainsFunc(in.view.Members, func(who Member) bool { return in.lacks(who.Node) })", "false", "TestRules"},
		{"complete twice", "in.view.Epoch == 0 || in.isComplete() ||", "in.view.Epoch == 0 ||", "TestRules"},
	})
	machinetest.Kill(t, "carried.go", []machinetest.Edit{
		{"the first report of a lock", "[]Holder{c.holder(first)}", "[]Holder{c.holder(first)}[:0]", "TestHeardOnce"},
		{"reported once, and again", "				c.goes[first.of][first.at] = false\n", "", "TestHeardOnce"},
		{"heard again", "closed || slices.ContainsFunc(kept,", "closed || false && slices.ContainsFunc(kept,", "TestHeardOnce"},
		{"heard alone first", "case a.Shared: // it", "case b.Shared: // it", "TestHeardOnce"},
		{"sharers before a hold alone", "closed || slices", "closed && false || slices", "TestHeardOnce"},
		{"the lowest fence goes on", "cmp.Compare(b.Fence, a.Fence)", "cmp.Compare(a.Fence, b.Fence)", "TestHeardOnce"},
		{"two alone", "if closed = !h.Shared; h.Shared || len(kept) == 0 {", "if closed = !h.Shared; true {", "TestHeardOnce"},
		{"seeds nobody that was heard once", "		c.holder(p).start(start)\n", "		_ = p\n", "TestCarried"},
		{"seeds nobody that was heard again", "		h.start(start)\n", "		_ = h\n", "TestCarried"},
		{"a sharer holds alone", "	if h.Shared {\n		start", "	if false {\n		start", "TestCarried"},
		{"forgotten, listed", "holders != nil && !next", "!next", "TestCarried"},
		{"the start of another lock", "start = dmutex.Start{Sharers: start.Sharers[:0]}", "", "TestCarried"},
		{"forgets no lock of one", "		c.goes[p.of][p.at] = false\n	}\n	delete", "		_ = p\n	}\n	delete", "TestCarried"},
		{"forgets no lock of several", "	delete(c.several, lock)\n", "", "TestCarried"},
	})
	machinetest.Kill(t, "past.go", []machinetest.Edit{
		// Who takes a claim.
		{"claims of nobody", "len(of) > 0 && slices", "slices", "TestMayClaim"},
		{"claims what the last does not hold", "slices.Contains(former, of[len(of)-1]) &&\n", "true &&\n", "TestMayClaim"},
		{"claims of one that lives", "return slices.Contains(view, id) }", "return false }", "TestMayClaim"},
		{"claims before others", "return !slices.Contains(of, id) }", "return false }", "TestMayClaim"},

		{"tells a brief word", "a.told <= own.Epoch && !own.Brief {", "a.told <= own.Epoch {", "TestBriefWord"},

		// The last word.
		{"a last word frees nothing", "f.Parting != nil && f.Parting.key(lock) == \"\" ||", "", "TestLastWord"},
		{"what is lent is free", "f.Parting != nil && f.Parting.key(lock) == \"\"", "f.Parting != nil", "TestLastWord"},
		{"any claim ends the wait", "found && w.Lent[i] == loan {", "found {", "TestLastWord"},
		{"the claim of another member ends the wait", "f.Node == node {\n			f.Parting.end", "true {\n			f.Parting.end", "TestLastWord"},
		{"a false claim is believed", "f.Parting.key(loan.Lock) != loan.Key", "false", "TestLastWord"},
		{"every claim is refuted", "f.Parting.key(loan.Lock) != loan.Key", "true", "TestLastWord"},
		{"refutes without a word", "f.Node == node && f.Parting != nil && f.Parting.key(loan", "f.Node == node && f.Parting.key(loan", "TestLastWord"},
		{"the word of another member", "		if m.met[i].node == node {\n			m.met[i].parting", "		if true {\n			m.met[i].parting", "TestLastWord"},
		{"told loans come back", "slices.DeleteFunc(slices.Clone(w.Lent)", "slices.DeleteFunc(w.Lent", "TestLastWord"},
		{"a word that is over is told", "return l.Key == \"\" })}", "return false })}", "TestLastWord"},
		{"what one of two leaves", "if other.key(l.Lock) != \"\" {", "if true {", "TestLastWord"},
		{"only one has the word", "f.Parting.and(p.Former[i].Parting)", "f.Parting", "TestLastWord"},
		{"it has nothing, and is waited for", "f.Epoch <= cleared || f.Parting != nil && len(f.Parting.Lent) == 0:", "f.Epoch <= cleared:", "TestLastWord"},
		{"blind with a last word", "case f.Parting != nil || slices.ContainsFunc(all.Words", "case slices.ContainsFunc(all.Words", "TestLastWord"},
		{"what acts changes", "	p.Former = slices.Clone(p.Former)\n	for i := range p.Former {\n		p.Former[i].Parting = p.Former[i].Parting.rest()\n	}\n", "", "TestLastWord"},
		{"no bound", "p.Former[i].Parting = nil\n", "\n", "TestLastWord"},
		{"unordered", "w.Lent[i-1].Lock >= w.Lent[i].Lock", "false", "TestPastBounds"},
		{"frees of an acquaintance", "		if a.node == node {\n			a.parting.end", "		if true {\n			a.parting.end", "TestLastWord"},
		{"frees in no report to come", "			a.parting.end(loan)\n", "", "TestPartsAndMoves"},
		{"frees in no view that acts", "	m.past.Free(node, loan)\n", "", "TestLastWord"},
	})
	machinetest.Kill(t, "record.go", []machinetest.Edit{
		{"keeps a brief word", "m.own = *word // it", "_ = *word // it", "TestBriefWord"},
		{"needs no word", "return slices.ContainsFunc(m.met, func(a acquaintance) bool { return a.gone > m.cleared })", "return false", "TestBriefWord"},
		{"deaf to a last word", "		m.parts(p.node, &Parting{msg.Lent})\n", "", "TestPartsAndMoves"},
		{"deaf to a move", "		m.freed(msg.Former, msg.Lent[0])\n", "", "TestPartsAndMoves"},
		{"moves in silence", "	m.emit(Event{Kind: Freed", "	_ = (Event{Kind: Freed", "TestPartsAndMoves"},
		{"moves past the reports", "			r.past.Free(former, loan)\n", "", "TestPartsAndMoves"},
		{"leaves with loans as without", "leaves && m.holding {", "false {", "TestLeaveHolding"},
		{"an exclusion that is none of its own", "if gone || leaves && m.holding", "if gone || leaves", "TestLeaveHolding"},

		// Rule 5.5: no life joins twice.
		{"joins twice", "was != dmutex.None || m.missed(&r), m.misfit", "was != dmutex.None, m.misfit", "TestUnknownJoinIsMissed"},
	})
	machinetest.Kill(t, "operate.go", []machinetest.Edit{
		{"forgets an unknown join", "			m.asked = number // the join may have been done\n", "", "TestUnknownJoinIsMissed"},
	})
	machinetest.Kill(t, "rejoining.go", []machinetest.Edit{
		{"missed, not given", "j.asked == dmutex.None || r.Highest < j.asked", "j.asked == dmutex.None", "TestMissed"},
		{"missed, another has it", "return e.Node == j.asked }", "return false }", "TestMissed"},
		{"missed, another had it", "		j.asked = dmutex.None // and", "		// and", "TestMissed"},
		{"missed again", "j.spent, j.asked = true, dmutex.None", "j.spent = true", "TestMissed"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"born without a promise", "max(m.clock, max(m.floor, 1)-1)", "max(m.floor, 1) - 1", "TestReplacedGoesOn"},
		{"born without a floor", "max(m.clock, max(m.floor, 1)-1)", "m.clock", "TestFloor"},
		{"born with too high a floor", "max(m.floor, 1)-1", "m.floor", "TestFloor"},
	})
	machinetest.Kill(t, "doubt.go", []machinetest.Edit{
		{"accused, in a view", "m.view.Epoch > 0 && !m.leaving && m.ended", "!m.leaving && m.ended", "TestNoDoubtOutside"},
		{"accuses, leaving", "!m.leaving && m.complete", "m.complete", "TestRules"},
		{"accuses, epoch", "&& v.Epoch > m.view.Epoch && !v.Has(m.me().node, m.life)\n}", "&& !v.Has(m.me().node, m.life)\n}", "TestDoubt"},
		{"accuses, never complete", "m.complete.Epoch > 0 && v.Epoch", "v.Epoch", "TestDoubt"},
		{"taken, outside", "p != m.me() && m.view.Epoch > 0", "p != m.me()", "TestNoDoubtOutside"},
		{"taken, of itself", "p != nil && p != m.me() &&", "p != nil &&", "TestDoubt"},
		{"doubts with an open round", "		m.round = 0\n", "", "TestDoubt"},
		{"ends on one word", "words > 1", "words > 0", "TestDoubt"},
		{"ends on no second word", "words > 1 ||", "", "TestDoubt"},
		{"leaves in doubt", " || m.leaving || now", " || now", "TestDoubt"},
		{"disputes without end", "if m.doubtAt = now + maxDoubt; again {", "if m.doubtAt = now + maxDoubt; false {", "TestDoubt"},
		{"another contradicts what is disputed", "q != p && m.disputes(q)", "false && m.disputes(q)", "TestDoubt"},
		{"nobody takes it back", "q != p && m.disputes(q)", "m.disputes(q)", "TestDoubt"},
		{"never forgets a dispute", "q.denied = q != p && (", "q.denied = (", "TestDoubt"},
		{"doubts without end", " || now >= m.doubtAt:", ":", "TestDoubt"},
		{"asks once", "m.nextRound(), now+askPause", "m.nextRound(), never", "TestDoubt"},
		{"asks without a pause", "	case now < m.askAt:\n", "", "TestDoubt"},
		{"asks in a round that is over", "		m.highest = m.question\n", "", "TestDoubt"},
		{"contradicted by a leaver", "promise.Leaving || p.life", "p.life", "TestDoubt"},
		{"contradicted by a replaced life", "p.life != p.newest || ", "", "TestDoubt"},
		{"contradicted by a stranger", "!m.view.Has(p.node, p.life) || ", "", "TestDoubt"},
		{"goes on without contradiction", "|| v.Epoch > m.view.Epoch && !v.Has(m.me().node, m.life) {", "|| v == nil {", "TestDoubt"},
		{"no later view contradicts", "|| v.Epoch > m.view.Epoch && !v.Has(m.me().node, m.life) {", "|| v.Epoch > m.view.Epoch {", "TestDoubt"},
		{"remembers", "q.later, q.rumor = 0, (View{});", "q.rumor = (View{});", "TestDoubt"},
		{"remembers a view", "			q.complete = View{}\n", "", "TestDoubt"},
	})
	machinetest.Kill(t, "leave.go", []machinetest.Edit{
		{"stayed", "m.stayed = true, true, m.highest", "m.stayed = true, true, 0", "TestRules"},
		{"leaves twice", "m.ended == Outside && !m.leaving {", "m.ended == Outside {", "TestRules"},
		{"go, trouble", "!m.leaving || m.trouble", "!m.leaving", "TestRules"},
		{"go, no promise", "p.life != 0 && p.promise == nil || p.bound", "p.bound", "TestRules"},
		{"go, bound", "p.bound != 0 && p.life != p.bound && !alone", "false && !alone", "TestRules"},
		{"go, bound to a former life", "p.life != p.bound && !alone", "p.life == 0 && !alone", "TestRules"},
		{"go, installed", "p.promise.Installed.life(me) != 0 || ", "", "TestRules"},
		{"go, completed", " || p.promise.Completed.life(me) != 0", "", "TestRules"},
		{"end, any complete view", "return m.frees(p.complete)", "return false", "TestRules"},
		{"end, in no view", "m.view.Epoch > 0 &&\n", "true &&\n", "TestRules"},
		{"frees, stayed", "return v.Epoch > m.stayed && ", "return v.Epoch > 0 && ", "TestRules"},
		{"frees, newest", "life != p.newest || p.complete.Epoch < v.Epoch", "p.complete.Epoch < v.Epoch", "TestRules"},
		{"frees, not all", "life != p.newest || p.complete.Epoch < v.Epoch", "life != p.newest", "TestRules"},
	})
}
