package deadlocktest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/explore"
)

// Explore visits every state of a trial, shortest runs first. Once all nodes
// have called Detect and no message is in flight, a node in each deadlock must have
// declared it, and no node may have declared one that does not exist. It returns a
// [*dmutextest.Violation] with a shortest run to the first state that is wrong, and
// in any case how far it came.
func (t *Trial) Explore() (r Report, err error) {
	search := explore.Search[*world]{
		Begin: func() (*world, error) { return t.begin(), nil },
		State: func(w *world) error {
			if slices.ContainsFunc(w.machines, Machine.Deadlocked) {
				r.Deadlocks++
			}
			return w.declared()
		},
		Step: func(before, after *world) error { return after.declares(before) },
		Script: func(log string, _ *world, v *dmutextest.Violation) string {
			return fmt.Sprintf("%s\n%v: %s\n", log, v.Kind, v.Why)
		},
		MaxStates: t.MaxStates,
		Progress:  t.Progress,
	}
	r.States, r.Complete, err = search.Run()
	return r, err
}

// logged does a step, and logs which nodes declare a deadlock in it.
func (w *world) logged(do func(*world)) error {
	if w.log == nil {
		do(w)
		return nil
	}
	was := make([]bool, len(w.machines))
	for i, m := range w.machines {
		was[i] = m.Deadlocked()
	}
	do(w)
	for i, m := range w.machines {
		if m.Deadlocked() && !was[i] {
			fmt.Fprintf(w.log, "    %d declares a deadlock\n", i+1)
		}
	}
	return nil
}

func (w *world) Log(log *strings.Builder) { w.log = log }
