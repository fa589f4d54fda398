package explore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/dmutextest"
)

// A pair of numbers, either of which may grow up to a bound.
type pair struct {
	at  [2]int
	log *strings.Builder
}

const bound = 4

func (p *pair) Clone() *pair                { c := *p; return &c }
func (p *pair) AppendState(b []byte) []byte { return fmt.Append(b, p.at) }
func (p *pair) Log(b *strings.Builder)      { p.log = b }

func (p *pair) Steps() (steps Steps[*pair]) {
	for i, n := range p.at {
		if n < bound {
			steps.Add(func(p *pair) error { return p.grow(i) }, "grow %d", i)
		}
	}
	return steps
}

func (p *pair) grow(i int) error {
	p.at[i]++
	if p.log != nil {
		fmt.Fprintln(p.log, "    now", p.at)
	}
	return nil
}

var errBad = errors.New("bad")

func search() Search[*pair] {
	return Search[*pair]{
		Begin: func() (*pair, error) { return new(pair), nil },
		State: func(*pair) error { return nil },
		Script: func(log string, p *pair, v *dmutextest.Violation) string {
			return fmt.Sprintf("%send %v: %s\n", log, p.at, v.Why)
		},
	}
}

// Every state is seen once.
func TestRun(t *testing.T) {
	s := search()
	seen := make(map[[2]int]int)
	s.State = func(p *pair) error { seen[p.at]++; return nil }
	s.Ends = errBad
	states, complete, err := s.Run()
	require.NoError(t, err)
	require.True(t, complete)
	require.Equal(t, (bound+1)*(bound+1), states)
	require.Len(t, seen, states)
	for at, n := range seen {
		require.Equal(t, 1, n, at)
	}
}

// A violation comes with a shortest run to it, and what its steps bring about:
// one of a state, and one of a step.
func TestViolation(t *testing.T) {
	s := search()
	s.State = func(p *pair) error {
		if p.at == [2]int{1, 1} {
			return Wrong(errBad, "both are %d", 1)
		}
		return nil
	}
	_, complete, err := s.Run()
	var v *dmutextest.Violation
	require.ErrorAs(t, err, &v)
	require.False(t, complete)
	require.Equal(t, errBad, v.Kind)
	require.Equal(t, "grow 0\n    now [1 0]\ngrow 1\n    now [1 1]\nend [1 1]: both are 1\n", v.Script)

	s = search()
	s.Step = func(before, after *pair) error {
		if before.at[1] == 0 && after.at[1] == 1 && before.at[0] == 2 {
			return Wrong(errBad, "too late")
		}
		return nil
	}
	_, _, err = s.Run()
	require.ErrorAs(t, err, &v)
	require.Equal(t, "grow 0\n    now [1 0]\ngrow 0\n    now [2 0]\ngrow 1\n    now [2 1]\nend [2 1]: too late\n", v.Script)
}

// looping is a pair whose second number begins again.
type looping struct{ pair }

func (l *looping) Clone() *looping { return &looping{*l.pair.Clone()} }

func (l *looping) Steps() (steps Steps[*looping]) {
	steps.Add(func(l *looping) error {
		l.at[1] = (l.at[1] + 1) % bound
		return nil
	}, "go on")
	return steps
}

// A run without an end is found if there must not be one.
func TestCycle(t *testing.T) {
	s := Search[*looping]{
		Begin:  func() (*looping, error) { return new(looping), nil },
		State:  func(*looping) error { return nil },
		Script: func(log string, _ *looping, v *dmutextest.Violation) string { return log + v.Why },
	}
	states, complete, err := s.Run()
	require.NoError(t, err)
	require.True(t, complete)
	require.Equal(t, bound, states)

	s.Ends = errBad
	_, complete, err = s.Run()
	require.ErrorIs(t, err, errBad)
	require.True(t, complete)
}

// A search can be bounded and stopped.
func TestStopped(t *testing.T) {
	s := search()
	s.MaxStates = 5
	states, complete, err := s.Run()
	require.NoError(t, err)
	require.False(t, complete)
	require.InDelta(t, 5, states, 2)

	s.MaxStates, s.Progress = 0, func(int) bool { return false }
	_, complete, err = s.Run()
	require.NoError(t, err)
	require.False(t, complete)
}
