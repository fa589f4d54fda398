package semaphore_test

import (
	"context"
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
	require.ErrorContains(t, err, "give New the method Mutex")
}

// A nameless lock has a name that is too long.
type nameless struct{ lock.Mutex }

func (nameless) Acquire(context.Context) (lock.Held, error) {
	return nil, dmutex.Misuse("the name is too long")
}

// A caller that has to wait hears that a permit cannot be taken: else there would be fewer permits than all believe.
func TestMisuse(t *testing.T) {
	door := locktest.New("s")
	s := semaphore.New("s", 2, func(name string) lock.Mutex {
		if name == "s" {
			return door
		}
		return nameless{locktest.New(name)}
	})
	first, err := door.Acquire(t.Context())
	require.NoError(t, err)
	second, err := s.TryAcquire(t.Context())
	require.NoError(t, err)
	_, err = s.Acquire(t.Context())
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "the name is too long")
	require.NoError(t, second.Release())
	require.NoError(t, first.Release())
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
