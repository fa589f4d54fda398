package deadlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"

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
			if !w.someCycle() {
				return nil
			}
			r.Cycles++
			return w.standing()
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

func (w *chases) someCycle() bool {
	for t := range w.txns {
		if len(w.around(t)) > 0 {
			return true
		}
	}
	return false
}

// Tell writes a step, and whether a wait ends in it.
func (w *chases) Tell(b []byte, step chaseEvent, after *chases) []byte {
	b = fmt.Appendln(b, step)
	if len(after.declared) > len(w.declared) {
		b = append(b, "    and a wait is ended\n"...)
	}
	return b
}

// Simulate makes a random run of the given number of steps, and then lets every
// transaction end what it has begun: a waiting one chases, any other releases. It
// returns how many waits were ended; none may be left. Like Explore, it returns a
// [*dmutextest.Violation] if anything is wrong.
func (t *Chases) Simulate(seed uint64, steps int) (victims int, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	w := t.begin()
	var run []chaseEvent
	do := func(s chaseEvent) error {
		run = append(run, s)
		err := s.Do(w)
		if err == nil {
			err = w.standing()
		}
		if v, ok := errors.AsType[*dmutextest.Violation](err); ok {
			told, last := search.Tell(t.begin(), run)
			v.Script = fmt.Sprintf("seed %d\n%s\n%v", seed, told, last)
		}
		return err
	}
	for range steps {
		all := w.Steps(nil)
		if len(all) == 0 {
			break
		}
		if err := do(all[random.IntN(len(all))]); err != nil {
			return len(w.declared), err
		}
	}
	for calm := 0; ; calm++ {
		for i := range w.txns {
			w.txns[i].acquires = 0
			if len(w.wire) == 0 {
				w.txns[i].chases = 1
			}
		}
		w.withdrawals, w.early = 0, 0
		all := w.Steps(nil)
		if len(all) == 0 {
			return len(w.declared), nil
		}
		if calm > 10_000 {
			return len(w.declared), search.Wrong(ErrMissed, "seed %d: the run does not end\n%v", seed, w)
		}
		if err := do(all[random.IntN(len(all))]); err != nil {
			return len(w.declared), err
		}
	}
}
