package semaphore_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/lock/semaphore"
)

// A nil context and nil functions are said in words.
func TestNil(t *testing.T) {
	var none context.Context
	s := semaphore.New("s", 2, func(name string) lock.Mutex { return locktest.New(name) })
	_, err := s.Acquire(none)
	require.ErrorContains(t, err, "the context is nil")
	_, err = s.TryAcquire(none)
	require.ErrorContains(t, err, "the context is nil")
	require.ErrorContains(t, s.Do(t.Context(), nil), "the function is nil")
	_, err = semaphore.New("s", 2, func(string) lock.Mutex { return nil }).Acquire(t.Context())
	require.ErrorContains(t, err, "it has no permits")
	_, err = semaphore.New[lock.Mutex]("s", 2, nil).Acquire(t.Context())
	require.ErrorContains(t, err, "the method Mutex")
	for _, bad := range []string{"", strings.Repeat("s", 253)} { // not all permits of them could be taken
		_, err := semaphore.New(bad, 2, locktest.New).Acquire(t.Context())
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "a name of 1 to 252 bytes")
	}
}

// A lapsed handle has ended before a function can begin under it.
type lapsed struct{ lock.Held }

func (lapsed) Work() (self dmutex.NodeID, working bool) { return 1, false }
func (lapsed) Rest()                                    {}

type lapses struct{ lock.Mutex }

func (m lapses) TryAcquire(ctx context.Context) (lock.Held, error) {
	h, err := m.Mutex.TryAcquire(ctx)
	return lapsed{h}, err
}

// No function begins under a permit that a member has lost.
func TestDoOfLostPermit(t *testing.T) {
	s := semaphore.New("s", 2, func(name string) lock.Mutex { return lapses{locktest.New(name)} })
	require.NoError(t, s.Do(t.Context(), func(context.Context, int, uint64) error {
		t.Error("the function runs")
		return nil
	}))
}
