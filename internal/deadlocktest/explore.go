package deadlocktest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/search"
)

// Explore visits every state of a trial, shortest runs first. Once all nodes
// have called Detect and no message is in flight, a node in each deadlock must have
// declared it, and no node may have declared one that does not exist. It returns a
// [*dmutextest.Violation] with a shortest run to the first state that is wrong, and
// in any case how far it came.
func (t *Trial) Explore() (r Report, err error) {
	r.Report, err = search.Search[*world, event]{
		First: t.begin(),
		State: func(w *world) error {
			if slices.ContainsFunc(w.machines, Machine.Deadlocked) {
				r.Deadlocks++
			}
			return w.declared()
		},
		Step: func(before, after *world) error { return after.declares(before) },
		Script: func(told string, _ *world, v *dmutextest.Violation) string {
			return fmt.Sprintf("%s\n%v: %s\n", told, v.Kind, v.Why)
		},
		MaxStates: t.MaxStates,
		Progress:  t.Progress,
	}.Run()
	return r, err
}

// Tell writes a step, and which nodes declare a deadlock in it.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i, m := range after.machines {
		if m.Deadlocked() && !w.machines[i].Deadlocked() {
			b = fmt.Appendf(b, "    %d declares a deadlock\n", i+1)
		}
	}
	return b
}
