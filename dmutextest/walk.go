package dmutextest

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Walk makes random runs of a group, each until nothing more can happen, with
// the checks of [Explore]. It is for groups too large to explore. The same seed
// makes the same runs; run k of seed s is run 0 of seed s+k. A [*Violation]
// tells the run as a script, and its seed.
func Walk(c Config, seed uint64, runs int) (Report, error) {
	r := Report{Network: c.Network, Least: math.MaxInt}
	m, begin, err := newModel(c)
	if err != nil {
		return Report{Network: c.Network}, err
	}
	for k := range runs {
		if v := m.walk(begin, seed+uint64(k), &r); v != nil {
			return r, v
		}
		r.Most, r.Dense = m.most, !m.sparse
	}
	return r, nil
}

// walk makes one run and adds it to the report.
func (m *model) walk(begin []uint32, seed uint64, r *Report) *Violation {
	var run []string
	messages := 0
	f := m.random(begin, seed, func(do verb, command string, _ []uint32) {
		run = append(run, command)
		if do == deliver || do == lose {
			messages++
		}
	})
	r.Steps += len(run)
	r.Depth = max(r.Depth, len(run))
	r.Least, r.Greatest = min(r.Least, messages), max(r.Greatest, messages)
	if f == nil {
		return nil
	}
	v := m.tell(f, run)
	v.Seed = seed
	return v
}

// random makes one run, and shows each step and the state after it.
func (m *model) random(begin []uint32, seed uint64, see func(do verb, command string, s []uint32)) *fault {
	random := rand.New(rand.NewPCG(seed, 0))
	s := slices.Clone(begin)
	f := m.rests(s)
	for f == nil {
		list := m.possible(s)
		if len(list) == 0 {
			break
		}
		a := list[random.IntN(len(list))]
		command := m.command(s, a)
		var next []uint32
		if next, f = m.apply(s, a); f == nil {
			f = m.rests(next)
		}
		s = append(s[:0], next...)
		see(a.do, command, s)
	}
	return f
}
