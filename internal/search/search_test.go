package search

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// A pair is two numbers that may grow up to a bound.
type pair struct {
	at [2]int
	on func(p *pair) error // what Do returns; may be nil

	around bool // the second number is counted modulo 3
}

type event = Event[*pair]

const bound = 4

func (p *pair) Clone(spare *pair) *pair {
	if spare == nil {
		spare = new(pair)
	}
	*spare = *p
	return spare
}

func (p *pair) AppendState(b []byte) []byte { return fmt.Append(b, p.at) }

func (p *pair) Steps(steps []event) []event {
	for i, n := range p.at {
		if n < bound {
			steps = append(steps, NewEvent(func(p *pair) error { return p.grow(i) }, "grow %d", i))
		}
	}
	return steps
}

func (p *pair) grow(i int) error {
	if p.at[i]++; p.around && i == 1 {
		p.at[i] %= 3
	}
	if p.on != nil {
		return p.on(p)
	}
	return nil
}

func (p *pair) Do(step event) error { return step.Do(p) }

func (p *pair) Tell(b []byte, step event, after *pair) []byte {
	return fmt.Appendf(b, "%v\n    now %v\n", step, after.at)
}

func search(first *pair) Search[*pair, event] {
	return Search[*pair, event]{First: first, Script: func(told string, p *pair, v *Violation) string {
		return fmt.Sprintf("%send %v: %s\n", told, p.at, v.Why)
	}}
}

var errBad = errors.New("bad")

// Every state is seen once, and every step is checked.
func TestRun(t *testing.T) {
	s := search(new(pair))
	seen, steps := make(map[[2]int]int), 0
	s.State = func(p *pair) error { seen[p.at]++; return nil }
	s.Step = func(before, after *pair) error {
		require.Equal(t, before.at[0]+before.at[1]+1, after.at[0]+after.at[1])
		steps++
		return nil
	}
	s.Ends = errBad
	s.Counts = func(e event) bool { return e.args[0] == 1 }
	r, err := s.Run()
	require.NoError(t, err)
	const side = bound + 1
	require.Equal(t, Report{States: side * side, Steps: 2 * bound * side, Depth: 2 * bound, Least: bound, Greatest: bound, Complete: true}, r)
	require.Len(t, seen, r.States)
	require.Equal(t, r.Steps, steps)
	for at, n := range seen {
		require.Equal(t, 1, n, at)
	}
	require.Equal(t, [2]int{}, s.First.at, "the first world stays as it is")
}

// A violation that State, Step or Do returns comes with a shortest run.
func TestViolation(t *testing.T) {
	late := func(before, after *pair) error {
		if before.at[1] == 0 && after.at[1] == 1 && before.at[0] == 2 {
			return Wrong(errBad, "too late")
		}
		return nil
	}
	equal := func(p *pair) error {
		if p.at == [2]int{1, 1} {
			return Wrong(errBad, "both are %d", 1)
		}
		return nil
	}
	for script, change := range map[string]func(s *Search[*pair, event]){
		"grow 0\n    now [1 0]\ngrow 1\n    now [1 1]\nend [1 1]: both are 1\n":                      func(s *Search[*pair, event]) { s.State = equal },
		"grow 0\n    now [1 0]\ngrow 0\n    now [2 0]\ngrow 1\n    now [2 1]\nend [2 1]: too late\n": func(s *Search[*pair, event]) { s.Step = late },
		"end [0 0]: birth\n": func(s *Search[*pair, event]) { s.State = func(*pair) error { return Wrong(errBad, "birth") } },
	} {
		s := search(new(pair))
		change(&s)
		r, err := s.Run()
		require.ErrorIs(t, err, errBad)
		require.False(t, r.Complete)
		v, ok := errors.AsType[*Violation](err)
		require.True(t, ok)
		require.Equal(t, script, v.Script)
	}

	s := search(&pair{on: func(p *pair) error { return equal(p) }})
	_, err := s.Run()
	require.ErrorContains(t, err, "bad: both are 1\n\ngrow 0\n")

	other := errors.New("not a violation")
	s = search(&pair{on: func(*pair) error { return other }})
	_, err = s.Run()
	require.Equal(t, other, err)
}

// If Ends is set, a run that never ends is a violation, and the script shows its cycle.
func TestEnds(t *testing.T) {
	s := search(&pair{around: true})
	r, err := s.Run()
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, 3*(bound+1), r.States)

	s.Ends = errBad
	r, err = s.Run()
	require.ErrorIs(t, err, errBad)
	require.False(t, r.Complete)
	require.ErrorContains(t, err, "grow 1\n    now [4 1]\ngrow 1\n    now [4 2]\ngrow 1\n    now [4 0]\nend [4 0]: the last 3 steps may repeat forever\n")

	s.Fair = func(_ *pair, step event) bool { return step.args[0] == 0 }
	_, err = s.Run()
	require.NoError(t, err, "only fair steps must end")
}

// From every state, fair steps must be able to reach a good state, or to leave the bounds.
func TestGood(t *testing.T) {
	s := search(&pair{around: true})
	s.Fair = func(_ *pair, step event) bool { return step.args[0] == 1 }
	s.Good = func(p *pair) bool { return p.at[1] == 2 }
	s.Stuck = func(p *pair) error { return Wrong(errBad, "stuck at %v", p.at) }
	r, err := s.Run()
	require.NoError(t, err)
	require.True(t, r.Complete)

	s.Good = func(p *pair) bool { return p.at[1] == 2 && p.at[0] != 1 }
	_, err = s.Run()
	require.ErrorContains(t, err, "bad: stuck at [1 0]\n\ngrow 0\n    now [1 0]\nend [1 0]: stuck at [1 0]\n")

	s.First.on = func(p *pair) error {
		if p.at == [2]int{1, 2} {
			return ErrOutside
		}
		return nil
	}
	r, err = s.Run()
	require.NoError(t, err)
	require.Equal(t, 3*(bound+1)-1, r.States)

	// A bad state without a fair step is found at once, also by a lean search.
	s = search(new(pair))
	s.Good = func(p *pair) bool { return p.at[0] < bound }
	s.Stuck = func(p *pair) error { return Wrong(errBad, "stuck at %v", p.at) }
	s.Lean = true
	_, err = s.Run()
	require.ErrorContains(t, err, "stuck at [4 4]")
}

// A search can be bounded and stopped.
func TestStopped(t *testing.T) {
	s := search(new(pair))
	s.MaxStates = 5
	r, err := s.Run()
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.InDelta(t, 5, r.States, 2)

	s.MaxStates, s.Progress = 0, func(Report) bool { return false }
	r, err = s.Run()
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.Equal(t, 3, r.States)
}

// Tell takes any run, also one that no search has found.
func TestTell(t *testing.T) {
	first := new(pair)
	told, last := Tell(first, first.Steps(nil))
	require.Equal(t, "grow 0\n    now [1 0]\ngrow 1\n    now [1 1]\n", told)
	require.Equal(t, [2]int{1, 1}, last.at)
}
