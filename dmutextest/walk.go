package dmutextest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/dmutex/dmutex/internal/search"
)

// Walk makes random runs of a group, each until nothing more can happen, with
// the checks of [Explore]. It is for groups too large to explore. The same seed
// makes the same runs; run k of seed s is run 0 of seed s+k. A [*Violation] has
// the run as a script, and its seed. A run of a million steps counts as an
// [ErrLivelock]; its script has the first hundred. Walk ignores MaxStates and
// Progress of the Config.
func Walk(c Config, seed uint64, runs int) (Report, error) {
	r := Report{Network: c.Network}
	first, err := newWorld(c)
	if err != nil {
		return r, err
	}
	for k := range uint64(max(0, runs)) {
		var run []action
		messages := 0
		err := first.random(seed+k, func(_ *world, a action, _ *world) {
			run = append(run, a)
			if a.consumes() {
				messages++
			}
		})
		r.Steps += len(run)
		r.Depth = max(r.Depth, len(run))
		r.Most, r.Dense = first.most, !first.sparse
		if v, ok := errors.AsType[*Violation](err); ok {
			if v.Kind == ErrLivelock {
				run = run[:100]
			}
			told, _ := search.Tell(first, run)
			return r, &Violation{Kind: v.Kind, Why: fmt.Sprintf("%s (seed %d)", v.Why, seed+k), Script: first.script(told, v)}
		}
		if k == 0 {
			r.Least = messages
		}
		r.Least, r.Greatest = min(r.Least, messages), max(r.Greatest, messages)
	}
	return r, nil
}

// A run that is so long does not end.
const endless = 1_000_000

// random makes one run. It shows each step, with the world before it and after it.
func (w *world) random(seed uint64, see func(before *world, a action, after *world)) error {
	random := rand.New(rand.NewPCG(seed, 0))
	before, after := w.Clone(nil), w.Clone(nil)
	err := before.rests()
	var list []action
	for steps := 0; err == nil; steps++ {
		if steps == endless {
			return search.Wrong(ErrLivelock, "the run has not ended after %d steps", steps)
		}
		if list = before.Steps(list[:0]); len(list) == 0 {
			break
		}
		a := list[random.IntN(len(list))]
		if err = before.Clone(after).Do(a); err == nil {
			err = after.rests()
		}
		see(before, a, after)
		before, after = after, before
	}
	return err
}
