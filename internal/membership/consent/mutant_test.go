package consent

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/search"
)

// excusing breaks rule (ii): the members that excuse names are excused, too.
func excusing(excuse func(m *Machine, node dmutex.NodeID) bool) alter {
	return func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.round == 0 {
			return out
		}
		evicted := m.evicted
		m.evicted = slices.Clone(evicted)
		for i := range m.members {
			if node := m.members[i].node; excuse(m, node) {
				m.evicted = append(m.evicted, node)
			}
		}
		out = out.And(m.flush(0))
		if m.round != 0 {
			m.evicted = evicted
		}
		return out
	}
}

// told returns one view of each promise of the open round, without empty views.
func told(m *Machine, view func(p *membership.Message) membership.View) (all []membership.View) {
	for i := range m.members {
		if p := m.members[i].promise; p != nil {
			if v := view(p); v.Epoch > 0 {
				all = append(all, v)
			}
		}
	}
	return all
}

func newest(all []membership.View) (v membership.View) {
	for _, w := range all {
		if w.Epoch > v.Epoch {
			v = w
		}
	}
	return v
}

// returned reports whether promises tell of an installed view that is later than v and
// has the node.
func returned(m *Machine, node dmutex.NodeID, v membership.View) bool {
	return slices.ContainsFunc(told(m, func(p *membership.Message) membership.View { return p.Installed }), func(w membership.View) bool {
		return w.Epoch > v.Epoch && w.Life(node) != 0
	})
}

func completed(p *membership.Message) membership.View {
	if p.Leaving {
		return membership.View{}
	}
	return p.Completed
}

// keeping breaks the rule that a promise counts only as long as its life is the latest.
func keeping(keep func(p, was *member) bool) alter {
	return func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		round, before := m.round, slices.Clone(m.members)
		out := input()
		for i := range before {
			if p, was := &m.members[i], &before[i]; m.round == round && p.promise == nil && keep(p, was) {
				p.promise = was.promise
			}
		}
		return out.And(m.flush(0))
	}
}

// mutants are the machine, or its driver, with one rule broken.
var mutants = []struct {
	name  string
	setup setup
}{
	// A life acts as soon as it has installed a view.
	{"acts-before-all-reports", setup{n: 2, rounds: 2, clocks: true, faults: faults{crashes: 1}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.in.View.Epoch > 0 && m.in.Reported && !m.in.IsComplete() {
			for i := range m.members {
				m.in.Take(m.members[i].node, nil, nil)
			}
			out = out.And(m.flush(0))
		}
		return out
	}}},

	// A lock that is held is missing from the report.
	{"holds-not-reported", setup{n: 2, rounds: 2, clocks: true, faults: faults{crashes: 1}, forget: true}},

	// The old view grants after the new one is installed.
	{"old-view-grants", setup{n: 2, rounds: 2, clocks: true, faults: faults{alarms: 1}, thaw: true}},

	// A life that has never been complete in a view excuses everybody.
	{"excused-by-fresh", setup{n: 2, rounds: 2, clocks: true, faults: faults{crashes: 1}, alter: excusing(func(m *Machine, node dmutex.NodeID) bool {
		return newest(told(m, completed)).Epoch == 0 && !returned(m, node, membership.View{})
	})}},

	// Any complete view excuses, not only the last.
	{"excused-by-older", setup{n: 3, rounds: many, clocks: true, faults: faults{crashes: 3, exits: 3}, alter: excusing(func(m *Machine, node dmutex.NodeID) bool {
		return slices.ContainsFunc(told(m, completed), func(v membership.View) bool { return v.Life(node) == 0 })
	})}},

	// A later view that is only installed does not count against an excuse.
	{"returned-excused", setup{n: 3, rounds: many, clocks: true, faults: faults{crashes: 3, exits: 3}, alter: excusing(func(m *Machine, node dmutex.NodeID) bool {
		v := newest(told(m, completed))
		return v.Epoch > 0 && v.Life(node) == 0
	})}},

	// A view that is only installed excuses.
	{"excused-by-installed", setup{n: 3, rounds: many, away: 2, clocks: true, behind: true, faults: faults{crashes: 1}, alter: excusing(func(m *Machine, node dmutex.NodeID) bool {
		v := newest(told(m, func(p *membership.Message) membership.View { return p.Installed }))
		return v.Epoch > 0 && v.Life(node) == 0
	})}},

	// The promise of a life counts after a later life of its member is known.
	{"replaced-life-counts", setup{n: 3, rounds: many, away: 1, clocks: true, behind: true, faults: faults{crashes: 1, exits: 1}, alter: keeping(func(p, was *member) bool { return p.life == was.life })}},

	// The promise of a life counts after a later life of its member was met.
	{"promise-outlives-life", setup{n: 3, rounds: many, away: 1, clocks: true, behind: true, faults: faults{crashes: 1, exits: 1}, alter: keeping(func(p, was *member) bool { return p.life != was.life })}},

	// A promise counts that arrives after the news of a later life of its member.
	{"late-promise-counts", setup{n: 3, rounds: many, away: 1, clocks: true, behind: true, faults: faults{crashes: 1, exits: 1}, alter: func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if msg != nil && msg.Kind == membership.Promise && msg.Round == m.round {
			m.member(msg.From).promise = msg
		}
		return out.And(m.flush(0))
	}}},

	// The word of a life that leaves excuses.
	{"excused-by-leaver", setup{n: 3, rounds: many, away: 1, clocks: true, faults: faults{crashes: 2, exits: 2}, alter: excusing(func(m *Machine, node dmutex.NodeID) bool {
		v := newest(told(m, func(p *membership.Message) membership.View { return p.Completed }))
		return v.Epoch > 0 && v.Life(node) == 0 && !returned(m, node, v)
	})}},

	// A view is installed after a later round was promised.
	{"installs-below-promise", setup{n: 3, rounds: many, clocks: true, faults: faults{crashes: 2, exits: 6}, alter: func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output {
		promised := m.highest
		if msg != nil && msg.Kind >= membership.Decide && msg.View.Epoch > m.in.View.Epoch {
			m.highest = min(m.highest, msg.View.Epoch)
		}
		out := input()
		m.highest = max(m.highest, promised)
		return out
	}}},

	// A new life has promised nothing.
	{"born-without-promise", setup{n: 2, rounds: many, clocks: true, faults: faults{crashes: 2, exits: 1}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		if !slices.ContainsFunc(m.members, func(p member) bool { return p.node != m.me().node && p.newest > 0 }) {
			m.highest = 0
		}
		return input()
	}}},

	// A leaver goes when one member of the view without it is complete.
	{"leaves-when-one-is-complete", setup{n: 3, rounds: many, clocks: true, faults: faults{exits: 3, crashes: 2}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.exit.Epoch > 0 && slices.ContainsFunc(m.members, func(p member) bool { return p.complete.Epoch >= m.exit.Epoch }) {
			m.end(Left)
		}
		return out
	}}},

	// A leaver goes when it knows of a view without it.
	{"leaves-when-decided", setup{n: 3, rounds: many, clocks: true, faults: faults{exits: 3, crashes: 2}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.exit.Epoch > 0 {
			m.end(Left)
		}
		return out
	}}},

	// A leaver goes at once.
	{"leaves-at-once", setup{n: 2, rounds: 2, clocks: true, faults: faults{exits: 1}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.leaving {
			m.end(Left)
		}
		return out
	}}},

	// A round is promised twice.
	{"round-used-twice", setup{n: 3, rounds: many, clocks: true, faults: faults{alarms: 3, crashes: 1, exits: 1}, alter: func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output {
		if msg != nil && msg.Kind == membership.Prepare && msg.Round == m.highest {
			m.highest--
		}
		return input()
	}}},

	// One word ends a life.
	{"ends-on-one-word", setup{n: 3, rounds: 3, clocks: true, faults: faults{slanders: 1}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		if m.phase == Doubting {
			m.end(Stopped)
		}
		return out
	}}},

	// A member passes on what it has only heard.
	{"hearsay-is-a-word", setup{n: 3, rounds: 3, clocks: true, faults: faults{slanders: 2}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		out := input()
		for _, p := range m.members {
			if p.life != 0 && p.life < p.newest && !p.told {
				m.member(p.node).told = true
				out.Messages = append(out.Messages, membership.Message{Kind: membership.Refuse, From: m.me().node, To: p.node, Round: m.highest, Life: p.newest})
			}
		}
		return out
	}}},

	// A life goes on when a member answers, whatever it answers.
	{"goes-on-without-contradiction", setup{n: 2, rounds: 4, clocks: true, faults: faults{lies: 1}, alter: func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output {
		if msg != nil && msg.Kind == membership.Promise && msg.Round == m.question {
			for i := range m.members {
				m.members[i].later, m.members[i].complete = 0, membership.View{}
			}
		}
		return input()
	}}},

	// An eviction counts although a message has told of the member's return.
	{"evicted-though-back", setup{n: 3, rounds: many, clocks: true, behind: true, faults: faults{evicts: 2, exits: 2}, alter: func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output {
		if msg == nil {
			return input()
		}
		evicted := m.evicted
		m.evicted = nil
		out := input()
		m.evicted = evicted
		return out.And(m.flush(0))
	}}},

	// An eviction is remembered after its round.
	{"evicted-for-good", setup{n: 3, rounds: many, clocks: true, faults: faults{crashes: 3, evicts: 3, alarms: 3}, alter: func(m *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
		evicted := m.evicted
		out := input()
		if m.evicted == nil {
			m.evicted = evicted
		}
		return out
	}}},
}

// Each rule is needed: without it something goes wrong in the run in testdata, and with it nothing does.
// If nothing goes wrong in that run anymore, -update searches for another: the shortest, or in a large
// group a random run, shortened.
//
// LESSONS L59, L64.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range mutants {
		t.Run(tt.name, func(t *testing.T) {
			file := fmt.Sprintf("testdata/mutant-%s.txt", tt.name)
			run, err := os.ReadFile(file)
			events := newWorld(tt.setup).retrace(string(run))
			_, text, wrong := newWorld(tt.setup).replay(events)
			if update := flag.Lookup("update").Value.String() == "true"; update && wrong == nil {
				text, wrong = refute(tt.setup)
			} else if !update {
				require.NoError(t, err)
			}
			require.Error(t, wrong)
			goldentest.Compare(t, file, text)

			whole := tt.setup
			whole.alter, whole.forget, whole.thaw = nil, false, false
			if _, text, err := newWorld(whole).replay(events); err != search.ErrOutside {
				require.NoError(t, err, "with the rule:\n%s", text)
			}
		})
	}
}

// retrace takes the steps of a written run, and returns those that are possible.
func (w *world) retrace(run string) (events []event) {
	run, _, _ = strings.Cut(run, "\n\n")
	for line := range strings.SplitSeq(strings.TrimSpace(run), "\n") {
		list := w.Steps(nil)
		k := slices.IndexFunc(list, func(a action) bool { return strings.HasPrefix(w.line(a), line) })
		if k < 0 {
			continue // it is not a step, but tells what followed
		}
		events = append(events, w.event(list[k]))
		if w.Do(list[k]) != nil {
			break
		}
	}
	return events
}

// many are more rounds than can be explored.
const many = 1 << 20

func refute(s setup) (text string, wrong error) {
	if s.rounds != many {
		_, err := explore(s, 1_000_000, false)
		if v, ok := errors.AsType[*search.Violation](err); ok {
			return v.Script, v
		}
		return "", err
	}
	_, run, wrong := roam(s, 1, 1_000_000)
	if wrong == nil {
		return "", nil
	}
	_, text, wrong = newWorld(s).replay(shorten(s, run, wrong))
	return text, wrong
}
