package hold_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
)

var errLapsed = errors.New("lapsed")

func lapsed() error { return errLapsed }

// A grant may come so late that its lease has ended, for example when the machine slept.
func TestLate(t *testing.T) {
	c := clock.New()
	for range 1000 {
		h := hold.New(t.Context(), c, leases.From(c.Now()-int64(time.Second), int64(time.Second)), 1, lapsed)
		<-h.Context().Done() // the timer notices
		require.ErrorIs(t, context.Cause(h.Context()), errLapsed)
		require.ErrorIs(t, h.Err(), errLapsed)
	}
}

// After a pause for which the timer was not running, the first call reports the loss. A hold whose lease does
// not end it is only suspended, and Extend ends that.
func TestPause(t *testing.T) {
	for _, first := range []func(h *hold.Hold) bool{
		func(h *hold.Hold) bool { return h.Err() != nil },
		func(h *hold.Hold) bool { return errors.Is(h.Released(lock.ErrReleased), errLapsed) },
		func(h *hold.Hold) bool { return !h.Suspended() && h.Over() },
	} {
		c := clock.New()
		h := hold.New(t.Context(), c, leases.From(c.Now(), int64(time.Hour)), 7, lapsed)
		require.NoError(t, h.Err())
		require.NoError(t, h.Context().Err())
		require.EqualValues(t, 7, h.Fence())
		c.StepWall(59 * time.Minute) // into the margin
		require.True(t, first(h))
		require.Equal(t, errLapsed, h.Err())
		require.False(t, h.Until().After(time.Now()))

		h = hold.New(t.Context(), c, leases.From(c.Now(), int64(time.Hour)), 7, nil)
		require.Zero(t, h.Until())
		require.False(t, h.Suspended())
		c.StepWall(2 * time.Hour)
		require.NoError(t, h.Err())
		require.True(t, h.Suspended())
		h.Extend(leases.From(c.Now(), int64(time.Hour)))
		require.False(t, h.Suspended())
		require.NoError(t, h.Released(fmt.Errorf("it is over: %w", lock.ErrReleased)))
		require.ErrorIs(t, h.Err(), lock.ErrReleased)
		h.End(errLapsed)
		require.ErrorIs(t, h.Err(), lock.ErrReleased, "the first reason stays")
		require.NoError(t, h.Released(errLapsed), "again")
	}
}

// A hold is lost when its lease ends, less a sixteenth, and Extend puts that off. It is suspended from two
// thirds of the lease on.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clock.New()
		const lease = 48 * time.Second
		h := hold.New(t.Context(), c, leases.From(c.Now(), int64(lease)), 1, lapsed)
		time.Sleep(lease / 2)
		h.Extend(leases.From(c.Now(), int64(lease)))
		require.Equal(t, lease*15/16, time.Until(h.Until()))
		time.Sleep(lease*2/3 - 1)
		require.False(t, h.Suspended())
		time.Sleep(time.Nanosecond)
		require.True(t, h.Suspended())
		time.Sleep(lease/3 - lease/16 - 1)
		require.NoError(t, h.Err())
		require.NoError(t, h.Context().Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, errLapsed, context.Cause(h.Context()), "the timer has ended it")
	})
}

// A Trouble is added to errors while it lasts, and a watcher sees that of the lock that it waits for.
func TestTrouble(t *testing.T) {
	var trouble hold.Trouble
	var watcher atomic.Pointer[hold.Trouble]
	require.NoError(t, trouble.Err())
	require.Equal(t, errLapsed, trouble.Add(errLapsed))
	hold.Show(t.Context(), &trouble)
	hold.Show(hold.Watch(t.Context(), &watcher), &trouble)
	trouble.Note(errBroken)
	require.Equal(t, errBroken, watcher.Load().Err())
	require.EqualError(t, trouble.Add(errLapsed), "lapsed: broken")
	trouble.Note(nil)
	require.NoError(t, watcher.Load().Err())
}

var errBroken = errors.New("broken")

// The error of a context has its cause, once.
func TestContextError(t *testing.T) {
	require.NoError(t, hold.ContextError(t.Context()))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	require.EqualError(t, hold.ContextError(ctx), "context canceled: broken")
	ctx, cancel = context.WithCancelCause(t.Context())
	cancel(nil)
	require.Equal(t, context.Canceled, hold.ContextError(ctx))
	m := &hold.Mutex{Package: "p", Lock: "l", Take: func(context.Context, bool, bool) (lock.Held, error) { panic("asked") }}
	_, err := m.Acquire(ctx)
	require.EqualError(t, err, `p: lock "l": context canceled`)
}

// Run joins the error of its function with that of a loss, releases in any case, and ends the function's
// context with the hold.
func TestRun(t *testing.T) {
	l := locktest.New("l")
	h, err := l.Acquire(t.Context())
	require.NoError(t, err)
	err = hold.Run(t.Context(), h, h.Release, func(ctx context.Context, fence uint64) error {
		require.Equal(t, h.Fence(), fence)
		l.Lose(errLapsed)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), errLapsed)
		return errBroken
	})
	require.ErrorIs(t, err, errBroken)
	require.ErrorIs(t, err, lock.ErrLost)
	h, err = l.Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, errBroken, hold.Run(t.Context(), h, h.Release, func(context.Context, uint64) error { return errBroken }))
	require.ErrorIs(t, h.Err(), lock.ErrReleased)

	m := &hold.Mutex{Package: "p", Lock: "l", Take: func(context.Context, bool, bool) (lock.Held, error) { return l.Acquire(t.Context()) }}
	require.Equal(t, errBroken, m.Do(t.Context(), func(context.Context, uint64) error { return errBroken }))
	m.Take = func(context.Context, bool, bool) (lock.Held, error) { return nil, errBroken }
	require.EqualError(t, m.Do(t.Context(), func(context.Context, uint64) error { return nil }), `p: lock "l": broken`)
	c := clock.New()
	ended := hold.New(t.Context(), c, leases.From(c.Now(), int64(time.Hour)), 1, lapsed)
	ended.End(errBroken)
	require.False(t, ended.Until().After(time.Now()))
}

// Until is never later than the end, however long its goroutine pauses.
func TestUntil(t *testing.T) {
	c := clock.New()
	const end = int64(time.Hour)
	h := hold.New(t.Context(), c, leases.From(end-int64(15*time.Second), int64(16*time.Second)), 1, lapsed)
	defer h.End(errLapsed)
	latest := func() time.Time { // the time at which the clock reaches the end
		left := time.Duration(end - c.Now())
		return time.Now().Add(left)
	}
	var mu sync.Mutex
	var last, bound time.Time
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10_000 {
				b, until := latest(), h.Until()
				mu.Lock()
				if bound.IsZero() || b.Before(bound) {
					bound = b
				}
				if until.After(last) {
					last = until
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	_, slept := c.Read() // which has brought the end nearer since
	require.LessOrEqual(t, last.Sub(bound), time.Duration(slept), "Until is too late")
}
