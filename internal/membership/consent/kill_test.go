package consent

import (
	"testing"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Each condition is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "consent.go", []machinetest.Edit{
		// Inputs.
		{"met, ended", "if m.ended() { // it only hears p", "if false {", "TestRules"},
		{"met, exit", "if m.exit.Has(peer, life) {", "if false {", "TestRules"},
		{"gone, promise", "p.promise, p.asked, p.timed = nil, 0, 0", "p.asked, p.timed = 0, 0", "TestRules"},
		{"gone, asked", "p.promise, p.asked, p.timed = nil, 0, 0", "p.promise, p.timed = nil, 0", "TestRules"},
		{"begins below the clock", "max(m.highest+1, m.seen+1, m.clock)", "max(m.highest+1, m.seen+1)", "TestRules"},
		{"begins at what was seen", "max(m.highest+1, m.seen+1, m.clock)", "max(m.highest+1, m.seen, m.clock)", "TestRules"},
		{"pauses no longer", "<<m.fails\n", "\n", "TestRules"},

		{"met, not reported", "m.in.View.Has(peer, life) && m.in.Reported", "m.in.View.Has(peer, life)", "TestRules"},
		{"trouble, epoch", "!m.ended() && epoch == m.in.View.Epoch && !m.trouble", "!m.ended() && !m.trouble", "TestRules"},
		{"trouble, twice", "epoch == m.in.View.Epoch && !m.trouble", "epoch == m.in.View.Epoch", "TestRules"},
		{"reports, ended", "!m.ended() && m.in.Report(", "m.in.Report(", "TestRules"},

		// Messages.
		{"promise, round", "m.round == msg.Round && p.life == p.newest", "p.life == p.newest", "TestRules"},
		{"promise, newest", "m.round == msg.Round && p.life == p.newest", "m.round == msg.Round", "TestRules"},
		{"refuse, news", "	case m.round == 0:\n		p.news = true\n", "	case m.round == 0:\n", "TestRules"},
		{"learn, old", "if life <= p.newest {", "if life == p.newest {", "TestRules"},
		{"learn, ended", "		case m.ended():\n		case m.phase == Outside:", "		case m.phase == Outside:", "TestRules"},
		{"learn, exit", "	if m.exit.Life(p.node) != 0 {\n		m.exit = membership.View{}", "	if m.exit.Life(p.node) != 0 {\n", "TestRules"},
		{"admonish, promise", "if p.promise = nil; !p.told", "if !p.told", "TestRules"},
		{"admonish, there", "p.life == 0 || p.life >= p.newest", "p.life >= p.newest", "TestRules"},
		{"admonish, hearsay", "!p.told && !m.in.View.Has(p.node, p.life)", "!p.told", "TestRules"},
		{"begins in doubt", "m.ended() || m.phase == Doubting || m.exit", "m.ended() || m.exit", "TestDoubt"},
		{"installs in doubt", "v.Epoch >= m.highest && m.phase != Doubting", "v.Epoch >= m.highest", "TestDoubt"},
		{"prepare, bound", "p.bound, p.asked = p.life, msg.Round", "p.asked = msg.Round", "TestRules"},
		{"prepare, asked", "p.bound, p.asked = p.life, msg.Round", "p.bound = p.life", "TestRules"},
		{"prepare, open round", "if m.round != 0 || m.wants() {", "if m.wants() {", "TestRules"},

		// Rounds.
		{"wants, ended", "m.ended() || m.phase == Doubting ||", "m.phase == Doubting ||", "TestRules"},
		{"wants, exit", "m.exit.Epoch > 0 && m.exit.Epoch >= max(m.highest, m.seen)", "false", "TestRules"},
		{"wants, later round", "m.exit.Epoch > 0 && m.exit.Epoch >= max(m.highest, m.seen)", "m.exit.Epoch > 0", "TestRules"},
		{"decides with the evicted", "u.promise != nil && !passed(u.promise, last)", "u.promise != nil", "TestRules"},
		{"decides twice", "	m.round = 0\n	if m.learnView(now, view);", "	if m.learnView(now, view);", "TestRules"},
		{"late, all leave", "last := !m.stays()", "last := false", "TestRules"},

		// Views.
		{"later view, open round", "if m.round != 0 && v.Epoch > m.round {", "if false {", "TestRules"},
		{"exit, older", "max(m.exit.Epoch, m.stayed)", "m.stayed", "TestRules"},
		{"exit, stayed", "max(m.exit.Epoch, m.stayed)", "m.exit.Epoch", "TestRules"},
		{"exit, of another round", " && (m.in.View.Epoch > 0 || v.Epoch == m.highest)", "", "TestRules"},
		{"exit, open round", "			m.exit = v\n			m.round = 0\n", "			m.exit = v\n", "TestExplore"},
		{"later view, ask", "	case m.in.View.Epoch > 0:\n		m.ask(now)", "	case m.in.View.Epoch > 0:\n", "TestRules"},
		{"complete, not asked", "if p.asked == m.highest && p.asked > m.in.View.Epoch {", "if false {", "TestRules"},
		{"complete, asked before", "if p.asked == m.highest && p.asked > m.in.View.Epoch {", "if p.asked > m.in.View.Epoch {", "TestRules"},
		{"complete, asked for this view", "if p.asked == m.highest && p.asked > m.in.View.Epoch {", "if p.asked == m.highest {", "TestRules"},
	})
	machinetest.Kill(t, "phase.go", []machinetest.Edit{
		{"handle, ended", "decline, ignored, ignored, ignored}", "decline, decline, decline, decline}", "TestRules"},
		{"promises in doubt", "prepare, decline,", "prepare, prepare,", "TestDoubt"},
		{"decides in doubt", "promise, answers,", "promise, promise,", "TestDoubt"},
		{"install, admonish", "		m.admonish(&m.members[i])\n", "", "TestRules"},
		{"enter, promised", "m.highest, m.trouble = max(m.highest, v.Epoch), false", "m.trouble = false", "TestRules"},
		{"enter, open round", "	m.become(Frozen)\n	m.round = 0\n", "	m.become(Frozen)\n", "TestRules"},
		{"doubts with an open round", "m.round, m.doubtAt = 0, now+later", "m.doubtAt = now + later", "TestDoubt"},
		{"no doubt before the view acts", "	Frozen:   {Frozen, Acting, Doubting,", "	Frozen:   {Frozen, Acting,", "TestDoubt"},
	})
	machinetest.Kill(t, "../install.go", []machinetest.Edit{
		{"report, twice", "in.View.Epoch == 0 || in.Reported", "in.View.Epoch == 0", "TestRules"},
		{"take, twice", "if in.ReportOf(node).Node != node {", "if true {", "TestRules"},
		{"complete, one lacks", "slices.ContainsFunc(in.View.Members, func(who Member) bool { return in.Lacks(who.Node) })", "false", "TestRules"},
		{"complete twice", "in.View.Epoch == 0 || in.IsComplete() ||", "in.View.Epoch == 0 ||", "TestRules"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"born without a promise", "max(m.clock, max(m.floor, 1)-1)", "max(m.floor, 1) - 1", "TestReplacedGoesOn"},
		{"born without a floor", "max(m.clock, max(m.floor, 1)-1)", "m.clock", "TestFloor"},
		{"born with too high a floor", "max(m.floor, 1)-1", "m.floor", "TestFloor"},
	})
	machinetest.Kill(t, "doubt.go", []machinetest.Edit{
		{"accused, in a view", "m.in.View.Epoch > 0 && !m.leaving && !m.ended", "!m.leaving && !m.ended", "TestNoDoubtOutside"},
		{"accuses, leaving", "!m.leaving && m.in.Complete", "m.in.Complete", "TestRules"},
		{"accuses, epoch", "&& v.Epoch > m.in.View.Epoch && !v.Has(m.me().node, m.life)\n}", "&& !v.Has(m.me().node, m.life)\n}", "TestDoubt"},
		{"accuses, never complete", "m.in.Complete.Epoch > 0 && v.Epoch", "v.Epoch", "TestDoubt"},
		{"taken, outside", "p != m.me() && m.in.View.Epoch > 0", "p != m.me()", "TestNoDoubtOutside"},
		{"taken, of itself", "p != nil && p != m.me() &&", "p != nil &&", "TestDoubt"},
		{"ends on one word", "words > 1", "words > 0", "TestDoubt"},
		{"ends on no second word", "words > 1 ||", "", "TestDoubt"},
		{"leaves in doubt", " || m.leaving || now", " || now", "TestDoubt"},
		{"disputes without end", "	case again:\n", "	case false:\n", "TestDoubt"},
		{"another contradicts what is disputed", "q != p && m.disputes(q)", "false && m.disputes(q)", "TestDoubt"},
		{"nobody takes it back", "q != p && m.disputes(q)", "m.disputes(q)", "TestDoubt"},
		{"never forgets a dispute", "q.denied = q != p && (", "q.denied = (", "TestDoubt"},
		{"doubts without end", " || now >= m.doubtAt:", ":", "TestDoubt"},
		{"asks once", "m.nextRound(), now+askPause", "m.nextRound(), never", "TestDoubt"},
		{"asks without a pause", "	case now < m.askAt:\n", "", "TestDoubt"},
		{"asks in a round that is over", "		m.highest = m.question\n", "", "TestDoubt"},
		{"contradicted by a leaver", "promise.Leaving || p.life", "p.life", "TestDoubt"},
		{"contradicted by a replaced life", "p.life != p.newest || ", "", "TestDoubt"},
		{"contradicted by a stranger", "!m.in.View.Has(p.node, p.life) || ", "", "TestDoubt"},
		{"goes on without contradiction", "|| v.Epoch > m.in.View.Epoch && !v.Has(m.me().node, m.life) {", "|| v == nil {", "TestDoubt"},
		{"no later view contradicts", "|| v.Epoch > m.in.View.Epoch && !v.Has(m.me().node, m.life) {", "|| v.Epoch > m.in.View.Epoch {", "TestDoubt"},
		{"remembers", "q.later, q.rumor = 0, (membership.View{});", "q.rumor = (membership.View{});", "TestDoubt"},
		{"remembers a view", "			q.complete = membership.View{}\n", "", "TestDoubt"},
	})
	machinetest.Kill(t, "leave.go", []machinetest.Edit{
		{"stayed", "m.stayed = true, true, m.highest", "m.stayed = true, true, 0", "TestRules"},
		{"leaves twice", "!m.ended() && !m.leaving {", "!m.ended() {", "TestRules"},
		{"go, trouble", "!m.leaving || m.trouble", "!m.leaving", "TestRules"},
		{"go, no promise", "p.life != 0 && p.promise == nil || p.bound", "p.bound", "TestRules"},
		{"go, bound", "p.bound != 0 && p.life != p.bound && !alone", "false && !alone", "TestRules"},
		{"go, bound to a former life", "p.life != p.bound && !alone", "p.life == 0 && !alone", "TestRules"},
		{"go, installed", "p.promise.Installed.Life(me) != 0 || ", "", "TestRules"},
		{"go, completed", " || p.promise.Completed.Life(me) != 0", "", "TestRules"},
		{"end, any complete view", "return m.frees(p.complete)", "return false", "TestRules"},
		{"end, in no view", "m.in.View.Epoch > 0 &&\n", "true &&\n", "TestRules"},
		{"frees, stayed", "return v.Epoch > m.stayed && ", "return v.Epoch > 0 && ", "TestRules"},
		{"frees, newest", "life != p.newest || p.complete.Epoch < v.Epoch", "p.complete.Epoch < v.Epoch", "TestRules"},
		{"frees, not all", "life != p.newest || p.complete.Epoch < v.Epoch", "life != p.newest", "TestRules"},
	})
}
