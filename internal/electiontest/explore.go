package electiontest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/search"
)

// Explore visits every state of a trial, shortest runs first. It returns a
// [*dmutextest.Violation] with a shortest run to the first state that is wrong, and
// in any case how far it came.
//
// Besides what the trial asks for, it checks that no epoch has two leaders, that
// epochs never fall at a node, and that every run comes to rest. At rest, all nodes
// that reach each other have the highest of them as the leader, in one epoch. If the
// majority rule is on and they are no majority, they have no leader.
func (t *Trial) Explore() (r Report, err error) {
	first, err := t.begin()
	if err != nil {
		return r, err
	}
	r.Report, err = search.Search[*world, event]{
		First: first,
		State: func(w *world) error {
			if !w.atRest() {
				return nil
			}
			r.Rests++
			return w.agree()
		},
		Step: func(_, after *world) error { return after.check() },
		Ends: ErrNoAgreement,
		Script: func(told string, _ *world, v *dmutextest.Violation) string {
			return fmt.Sprintf("%s\n%s\nwrong: %s\n", first.title(), told, v.Why)
		},
		MaxStates: t.MaxStates,
		Progress:  t.Progress,
	}.Run()
	return r, err
}

func (w *world) atRest() bool {
	for _, m := range w.machines {
		if m != nil && m.TicksLeft() > 0 {
			return false
		}
	}
	return !w.anyNews() && !slices.ContainsFunc(w.channels, func(queue []election.Message) bool { return len(queue) > 0 })
}

// title says how the group begins.
func (w *world) title() string {
	b := fmt.Appendf(nil, "%d nodes; majority rule: %v; ", w.Nodes, w.Majority)
	if w.Starts == nil {
		leader, epoch := w.leader(0)
		b = fmt.Appendf(b, "%d leads in epoch %d", leader, epoch)
	} else {
		b = append(b, "they run at first:"...)
	}
	for _, i := range w.Starts {
		b = fmt.Appendf(b, " %d", i+1)
	}
	return string(append(b, '\n'))
}

// Tell writes a step, and where another node leads then.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i, m := range after.machines {
		before, last := w.leader(i)
		leader, epoch := after.leader(i)
		if m == nil || leader == before && epoch == last {
			continue
		}
		who := "nobody leads"
		if leader != dmutex.None {
			who = leader.String() + " leads"
		}
		b = fmt.Appendf(b, "    at %d: %s in epoch %d\n", i+1, who, epoch)
	}
	return b
}
