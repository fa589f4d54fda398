package deadlocktest

import (
	"fmt"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/search"
)

// A ChaseReport is what an exploration of [Chases], or a number of random runs,
// has seen.
type ChaseReport struct {
	search.Report
	Cycles  int // states in which there is one
	Victims int // steps by which a wait is ended
}

// Explore visits every state, shortest runs first. It checks that a transaction
// that ends its wait was in a cycle, that the cycle loses no other wait, and that
// the youngest member of every cycle would find it if it stayed. It returns a
// [*dmutextest.Violation] with a shortest run to the first state that is wrong, and in
// any case how far it came.
func (t *Chases) Explore() (r ChaseReport, err error) {
	r.Report, err = search.Search[*chases, chaseEvent]{
		First: t.begin(),
		State: func(w *chases) error {
			cycle, err := w.standing()
			if cycle {
				r.Cycles++
			}
			return err
		},
		Step: func(before, after *chases) error {
			r.Victims += len(after.declared) - len(before.declared)
			return nil
		},
		Script: func(told string, w *chases, v *dmutextest.Violation) string {
			return fmt.Sprintf("%s\n%v\n%v: %s\n", told, w, v.Kind, v.Why)
		},
		MaxStates: t.MaxStates,
		Progress:  t.Progress,
	}.Run()
	return r, err
}

// Tell writes a step, and whether a wait ends in it.
func (w *chases) Tell(b []byte, step chaseEvent, after *chases) []byte {
	b = fmt.Appendln(b, step)
	if len(after.declared) > len(w.declared) {
		b = append(b, "    and a wait is ended\n"...)
	}
	return b
}
