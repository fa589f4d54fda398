package electiontest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/explore"
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
	search := explore.Search[*world]{
		Begin: t.begin,
		State: func(w *world) error {
			if !w.atRest() {
				return nil
			}
			r.Rests++
			return w.agree()
		},
		Step: func(_, after *world) error { return after.check() },
		Ends: ErrNoAgreement,
		Script: func(log string, _ *world, v *dmutextest.Violation) string {
			return fmt.Sprintf("%s\nwrong: %s\n", log, v.Why)
		},
		MaxStates: t.MaxStates,
		Progress:  t.Progress,
	}
	r.States, r.Complete, err = search.Run()
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

// Log writes how the group begins, and then which node leads.
func (w *world) Log(log *strings.Builder) {
	fmt.Fprintf(log, "%d nodes; majority rule: %v; ", w.Nodes, w.Majority)
	if w.Starts == nil {
		leader, epoch := w.machines[0].Leader()
		fmt.Fprintf(log, "%d leads in epoch %d", leader, epoch)
	} else {
		log.WriteString("they run at first:")
	}
	for _, i := range w.Starts {
		fmt.Fprintf(log, " %d", i+1)
	}
	log.WriteString("\n\n")
	w.log = log
}
