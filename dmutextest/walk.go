package dmutextest

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Walk makes random runs of a group, each until nothing more can happen, with
// the checks of [Explore]. It is for groups too large to explore. The same seed
// makes the same runs; run k of seed s is run 0 of seed s+k. A [*Violation] has
// the run as a script, and its seed. A run of a million steps counts as an
// [ErrLivelock]; its script has the first hundred. Walk ignores MaxStates and
// Progress of the Config.
func Walk(c Config, seed uint64, runs int) (Report, error) {
	r := Report{Network: c.Network}
	m, begin, err := newModel(c)
	if err != nil {
		return r, err
	}
	for k := range uint64(max(0, runs)) {
		var run []int
		messages := 0
		f := m.random(begin, seed+k, func(choice int, a action, _, _ []uint32) {
			run = append(run, choice)
			if a.do == deliver || a.do == lose {
				messages++
			}
		})
		r.Steps += len(run)
		r.Depth = max(r.Depth, len(run))
		r.Most, r.Dense = m.most, !m.sparse
		if f != nil && f.kind == ErrLivelock {
			run = run[:100]
		}
		if f != nil {
			v := m.violation(f, begin, run)
			v.Why += fmt.Sprintf(" (seed %d)", seed+k)
			return r, v
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

// random makes one run. It shows each step: which of the possible ones it is, and the
// state before it and after it.
func (m *model) random(begin []uint32, seed uint64, see func(choice int, a action, before, after []uint32)) *fault {
	random := rand.New(rand.NewPCG(seed, 0))
	s := slices.Clone(begin)
	f := m.rests(s)
	for steps := 0; f == nil; steps++ {
		if steps == endless {
			return faultf(ErrLivelock, "the run has not ended after %d steps", steps)
		}
		list := m.possible(s)
		if len(list) == 0 {
			break
		}
		choice := random.IntN(len(list))
		a := list[choice]
		var next []uint32
		if next, f = m.apply(s, a); f == nil {
			f = m.rests(next)
		}
		see(choice, a, s, next)
		s = append(s[:0], next...)
	}
	return f
}
