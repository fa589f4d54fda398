package fence_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/lock/fence"
)

// LESSONS L2, L45: a fence lower than one that was seen is refused.
func TestGate(t *testing.T) {
	var g fence.Gate
	require.Zero(t, g.Seen())
	require.NoError(t, g.Admit(3))
	require.NoError(t, g.Admit(3), "a holder may write twice")
	require.NoError(t, g.Admit(5))
	for _, old := range []uint64{1, 3, 4} {
		err := g.Admit(old)
		require.ErrorIs(t, err, fence.ErrStale)
		require.EqualError(t, err, fmt.Sprintf("fence: stale: %d is lower than 5, which a later holder has used", old))
		require.Equal(t, fence.Seen{Alone: 5}, g.Seen(), "a refusal has changed something")
	}
}

// Every gate refuses a caller without a fence.
func TestGateRefusesNoFence(t *testing.T) {
	var g fence.Gate
	require.ErrorIs(t, g.Admit(0), fence.ErrStale)
	require.EqualError(t, fence.NewGate(fence.Seen{Alone: 7}).Admit(0), "fence: stale: 0 is the fence of no grant")
}

func TestGateGoesOnFromStored(t *testing.T) {
	g := fence.NewGate(fence.Seen{Alone: 7})
	require.ErrorIs(t, g.Admit(6), fence.ErrStale)
	require.NoError(t, g.Admit(7))
}

// LESSONS L46: a write runs if its fence passes, and only then.
func TestGateDo(t *testing.T) {
	var g fence.Gate
	mine := errors.New("mine")
	require.Equal(t, mine, g.Do(2, func() error { return mine }))
	require.ErrorIs(t, g.Do(1, func() error {
		require.Fail(t, "a stale write has run")
		return nil
	}), fence.ErrStale, "the fence of a write that failed was seen all the same")
	require.Panics(t, func() { _ = g.Do(3, func() error { panic("oops") }) })
	require.NoError(t, g.Do(3, func() error { return nil }), "the panic has shut the gate for good")
}

// A newer holder waits for the write that is in progress. The older holder does not get in again.
func TestGateDoExcludes(t *testing.T) {
	var (
		g   fence.Gate
		log []string
		wg  sync.WaitGroup
	)
	require.NoError(t, g.Do(1, func() error {
		log = append(log, "old begins")
		wg.Go(func() {
			require.NoError(t, g.Do(2, func() error {
				log = append(log, "new")
				return nil
			}))
		})
		for range 1000 { // time enough for the new one, if it need not wait
			runtime.Gosched()
		}
		log = append(log, "old ends")
		return nil
	}))
	wg.Wait()
	require.Equal(t, []string{"old begins", "old ends", "new"}, log)
	require.ErrorIs(t, g.Do(1, func() error { return nil }), fence.ErrStale)
}

// Fences that pass under load rise.
func TestGateConcurrently(t *testing.T) {
	var (
		g      fence.Gate
		wg     sync.WaitGroup
		passed []uint64
	)
	for i := range uint64(8) {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, i))
			for range 1000 {
				f := 1 + g.Seen().Alone/2 + rng.Uint64N(100)
				err := g.Do(f, func() error {
					passed = append(passed, f)
					return nil
				})
				if err != nil {
					require.ErrorIs(t, err, fence.ErrStale)
				}
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, passed)
	require.IsNonDecreasing(t, passed)
}

// A nil function is said in words, and uses up no fence.
func TestNilFunction(t *testing.T) {
	g := new(fence.Gate)
	require.ErrorContains(t, g.Do(5, nil), "the function is nil")
	require.ErrorContains(t, g.Share(5, nil), "the function is nil")
	require.Zero(t, g.Seen())
}
