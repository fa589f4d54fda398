package node_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// This file shows what docs/lessons.md lists and no other test shows.

// LESSONS L20, L34: Acquire returns either a handle or an error, never both and never neither.
func TestHandleOrError(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(2)
		y := nameAt(1, g.members)
		held := g.acquire(1, "x")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		refused := func(held lock.Held, err error) {
			t.Helper()
			require.Error(t, err)
			require.Nil(t, held)
		}
		refused(g.mutex(1, y).Acquire(over))
		refused(g.mutex(1, y).TryAcquire(over))
		refused(g.mutex(2, "x").TryAcquire(t.Context()))
		refused(g.mutex(2, "x").Acquire(soon))
		refused(g.mutex(2, "").Acquire(t.Context()))
		require.NoError(t, held.Release())
		require.NotNil(t, g.acquire(2, "x"))
		g.crash(1)
		soon, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		refused(g.mutex(2, y).Acquire(soon))
		refused(g.mutex(2, y).TryAcquire(soon))
		n := g.node(2)
		g.close(2)
		refused(n.Mutex(y).Acquire(t.Context()))
		refused(n.Mutex(y).TryAcquire(t.Context()))
	})
}

// LESSONS L21: a canceled wait needs no answer, so it never hangs on an unreachable peer. Its
// request is withdrawn there when the peer is back.
func TestCancelUnreachable(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2}, []dmutex.NodeID{3})
		for _, id := range g.members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			before := time.Now()
			h, err := g.mutex(id, "x").Acquire(ctx)
			if err == nil { // the algorithm needed no peer
				require.NoError(t, h.Release())
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, time.Second, time.Since(before))
			}
			cancel()
		}
		g.net.Heal()
		for _, id := range g.members {
			require.NoError(t, g.acquire(id, "x").Release())
		}
		time.Sleep(time.Minute)
		for _, n := range g.all {
			require.Equal(t, dmutex.Idle, n.Mutex("x").Status().Phase)
		}
	})
}

// LESSONS L26: each reason has an error of its own.
func TestReasonsDiffer(t *testing.T) {
	reasons := []error{
		node.ErrBusy, node.ErrReleased, node.ErrLost, node.ErrStopped, node.ErrClosed, node.ErrConfig,
		node.ErrNumberTaken, node.ErrReplaced, node.ErrEvicted,
		node.ErrOverflow, node.ErrDeadlock, node.ErrNotElected, node.ErrResigned,
		dmutex.ErrMisuse, dmutex.ErrPeer, dmutex.ErrExhausted, context.Canceled, context.DeadlineExceeded,
	}
	for i, a := range reasons {
		for j, b := range reasons {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}

// LESSONS L28: a handle that several goroutines release at once is released once.
func TestReleaseTogether(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		for range 20 {
			held := g.acquire(1, "x")
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() { require.NoError(t, held.Release()) })
			}
			next := g.acquire(1, "x")
			wg.Wait()
			require.NoError(t, next.Err())
			require.Equal(t, dmutex.Held, g.mutex(1, "x").Status().Phase)
			require.NoError(t, next.Release())
		}
	})
}

// LESSONS L40, L41, L42: the handle owns the lock, not the goroutine. Any goroutine may release it,
// and the goroutine that holds it cannot acquire it once more.
func TestHandleOwns(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(1, "x")
		_, err := g.mutex(1, "x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
		released := make(chan error)
		go func() { released <- held.Release() }()
		require.NoError(t, <-released)
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// frames counts what all processes have sent.
func (g *group) frames() (n int64) {
	for _, s := range g.all {
		n += s.frames.Load()
	}
	return n
}

// LESSONS L13, L15: the methods of a handle, and its release, never wait for the network, not even
// for a link that is stuck.
func TestHandleDoesNotWait(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		one, other := g.acquire(1, "x"), g.acquire(1, "y")
		waiting := g.acquireLater(t.Context(), 2, "y")
		time.Sleep(time.Second)
		stuck := make(chan struct{})
		g.node(1).stuck.Store(&stuck)
		released := make(chan error)
		go func() { released <- other.Release() }()
		synctest.Wait() // Release is in Send
		before := time.Now()
		require.NoError(t, one.Err())
		require.NoError(t, one.Context().Err())
		require.False(t, isAsked(one))
		require.NotZero(t, one.Fence())
		require.NoError(t, one.Release())
		require.ErrorIs(t, one.Err(), node.ErrReleased)
		require.Equal(t, before, time.Now())
		select {
		case <-released:
			require.Fail(t, "the link was not stuck")
		default:
		}
		close(stuck)
		require.NoError(t, <-released)
		require.NoError(t, granted(t, waiting).Release())
	})
}

// If no other caller at this node waits, another goroutine sends the RELEASE.
func TestReleaseDoesNotSend(t *testing.T) {
	bubble(t, both, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		held, stuck := g.acquire(2, "x"), make(chan struct{})
		g.node(2).stuck.Store(&stuck)
		require.NoError(t, held.Release())
		synctest.Wait() // the other goroutine is in Send
		close(stuck)
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// LESSONS L49: a hand-over takes the time of one or two messages, depending on the algorithm, and
// no timer.
func TestHandOverTakesMessagesOnly(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			const delay = time.Millisecond
			bubble(t, leased, a.Algorithm, memlink.Config{MinDelay: delay, MaxDelay: delay}, func(t *testing.T, g *group) {
				g.open(3)
				held := g.acquire(2, "x")
				waiting := g.acquireLater(t.Context(), 3, "x")
				time.Sleep(time.Hour)
				before := time.Now()
				require.NoError(t, held.Release())
				require.NoError(t, granted(t, waiting).Release())
				require.LessOrEqual(t, time.Since(before), 2*delay)
			})
		})
	}
}

// LESSONS L49, L52: holding and waiting cost no frame and no timer, for however long.
func TestWaitingIsIdle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		waiting := g.acquireLater(t.Context(), 2, "x")
		time.Sleep(time.Minute)
		before := g.frames()
		time.Sleep(2 * time.Hour)
		require.Equal(t, before, g.frames())
		require.NoError(t, held.Release())
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L54: a peer that cannot be reached gets one or two frames a second, however many callers
// wait for it.
func TestUnreachableIsNotStormed(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		g.net.Cut(2, 1)
		before := g.frames()
		var waits []<-chan outcome
		for range 100 {
			waits = append(waits, g.acquireLater(t.Context(), 2, "x"))
		}
		time.Sleep(time.Hour)
		require.Less(t, g.frames()-before, int64(2*3600))
		g.net.Heal()
		for _, w := range waits {
			require.NoError(t, granted(t, w).Release())
		}
	})
}
