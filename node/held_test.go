package node_test

import (
	"context"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L38, L47: a holder can set a deadline for its own work. The deadline is no lease: when it
// passes, the lock stays held, and no other node gets it.
func TestHoldDeadline(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(1, "x")
		ctx, cancel := context.WithTimeout(held.Context(), time.Minute)
		defer cancel()
		waiting := g.acquireLater(t.Context(), 2, "x")

		time.Sleep(time.Minute - time.Nanosecond)
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)

		time.Sleep(10 * time.Minute)
		require.NoError(t, held.Err())
		require.Equal(t, dmutex.Held, g.mutex(1, "x").Status().Phase)
		require.Empty(t, waiting, "granted while the holder may be at work")
		require.NoError(t, held.Release())
		h := granted(t, waiting)
		require.NoError(t, h.Release())

		ctx, cancel = context.WithTimeout(h.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, context.Cause(ctx), node.ErrReleased, "the end of the hold also ends the context")
	})
}

// LESSONS L71: Do releases the lock when its function returns, not when the context ends.
func TestDoReleasesLast(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		ctx, cancel := context.WithCancel(t.Context())
		var waiting <-chan outcome
		require.NoError(t, g.mutex(1, "x").Do(ctx, func(ctx context.Context, _ uint64) error {
			waiting = g.acquireLater(t.Context(), 2, "x")
			cancel()
			<-ctx.Done()
			time.Sleep(10 * time.Minute) // the function ignores its context
			require.Empty(t, waiting, "granted before the function has returned")
			return nil
		}))
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L1, L5, L16: Close ends the context of a function that runs under Do, and says why. It waits for the function, and keeps its
// lock until then. Other locks are free at once.
func TestCloseWaitsForDo(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		closeWaits(t, g, func(n *node.Node, f func(context.Context, uint64) error) error {
			return n.Mutex("x").Do(t.Context(), f)
		})
	})
	each(t, both, func(t *testing.T, g *group) {
		closeWaits(t, g, func(n *node.Node, f func(context.Context, uint64) error) error {
			permits := semaphore.New("x", 1, n.Mutex)
			return permits.Do(t.Context(), func(ctx context.Context, _ int, fence uint64) error { return f(ctx, fence) })
		})
	})
}

func closeWaits(t *testing.T, g *group, do func(*node.Node, func(context.Context, uint64) error) error) {
	g.open(2)
	one, stop, done := g.node(1), make(chan struct{}), make(chan error, 1)
	go func() {
		done <- do(one.Node, func(ctx context.Context, _ uint64) error {
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), node.ErrClosed)
			<-stop // the function ignores its context
			return nil
		})
	}()
	synctest.Wait()
	g.acquire(1, "y")
	next := g.acquireLater(t.Context(), 2, "x")
	closed := make(chan error, 1)
	go func() { closed <- one.Close(t.Context()) }()
	require.NoError(t, g.acquire(2, "y").Release())
	time.Sleep(10 * time.Minute)
	require.Empty(t, closed)
	require.Empty(t, next)
	close(stop)
	err := <-done
	require.ErrorIs(t, err, node.ErrLost)
	require.ErrorIs(t, err, node.ErrClosed)
	require.NoError(t, <-closed)
	require.NoError(t, (<-next).held.Release())
}

// Close waits for a function that runs under Do even if the node has stopped before. It returns an
// error if its context ends first.
func TestCloseWaitsForDoOfAStoppedNode(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		stop, done := make(chan struct{}), make(chan error, 1)
		for range 2 {
			go func() {
				done <- g.mutex(1, "x").Do(t.Context(), func(ctx context.Context, _ uint64) error {
					<-ctx.Done()
					<-stop
					return nil
				})
			}()
		}
		synctest.Wait()
		g.closeLink(1)
		require.ErrorIs(t, <-done, transport.ErrClosed, "the Do that waits")
		err := g.node(1).Close(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `the function that runs under lock "x" has not returned`)
		close(stop)
		require.ErrorIs(t, <-done, transport.ErrClosed)
	})
}

// LESSONS L17: a copy of a handle, which vet forbids, releases neither the hold of the handle nor a
// later hold.
func TestCopiedHandle(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(1)
		first := g.acquire(1, "x")
		duplicate := reflect.New(reflect.TypeOf(first).Elem())
		duplicate.Elem().Set(reflect.ValueOf(first).Elem())
		require.ErrorIs(t, duplicate.Interface().(lock.Held).Release(), dmutex.ErrMisuse)
		require.NoError(t, first.Err())
		require.NoError(t, first.Release())
		second := g.acquire(1, "x")
		require.ErrorIs(t, duplicate.Interface().(lock.Held).Release(), dmutex.ErrMisuse)
		require.NoError(t, second.Err())
		require.Equal(t, dmutex.Held, g.mutex(1, "x").Status().Phase)
		require.NoError(t, second.Release())
	})
}

// nosy is a context that counts the calls of Value.
type nosy struct {
	context.Context
	calls *int
}

func (c nosy) Value(key any) any {
	*c.calls++
	return c.Context.Value(key)
}

// No code of the application runs under the mutex of the locks, so Status calls no method of a
// context.
func TestStatusAsksNoContext(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(1)
		calls := 0
		h, err := g.mutex(1, "x").Acquire(nosy{t.Context(), &calls})
		require.NoError(t, err)
		before := calls
		require.Equal(t, dmutex.Held, g.mutex(1, "x").Status().Phase)
		require.Equal(t, 1, g.node(1).Status().Held)
		require.Equal(t, before, calls)
		require.NoError(t, h.Release())
	})
}

// Each error names the package, once and first, however it came about.
func TestErrorsNameThePackageOnce(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		one := g.node(1)
		held, lost := g.acquire(1, "held"), g.acquire(1, "lost")
		txn, err := one.AcquireAll(t.Context(), "a", "b")
		require.NoError(t, err)
		require.NoError(t, held.Release())
		_, busy := one.Mutex("lost").TryAcquire(t.Context())
		_, late := one.Mutex("lost").Acquire(nodetest.ContextFor(t, time.Second))
		done, led := make(chan error, 1), make(chan error, 1)
		until := func(ctx context.Context, _ uint64) error { <-ctx.Done(); return nil }
		go func() { done <- one.Mutex("done").Do(t.Context(), until) }()
		go func() { led <- one.Election("led").Campaign(t.Context(), until) }()
		pass(time.Second)
		require.NoError(t, one.Close(t.Context()))
		_, closed := one.Mutex("x").Acquire(t.Context())
		for text, err := range map[string]error{
			`node: lock was released`:                                                   held.Err(),
			`node: lock was lost: the node is closed`:                                   lost.Release(),
			`node: lock "lost": lock is busy: held by this process for 0s`:              busy,
			`node: lock "lost": held by this process for 1s: context deadline exceeded`: late,
			`node: lock "x": the node is closed`:                                        closed,
			`node: the node is closed`:                                                  one.Ready(t.Context()),
			`node: lock "election/x": not elected: the node is closed`: one.Election("x").Campaign(t.Context(), func(context.Context, uint64) error {
				return nil
			}),
			`node: lock "done": lock was lost: the node is closed`:                                                     <-done,
			`node: lock "election/led": lock was lost: the node is closed`:                                             <-led,
			"node: lock \"b\": lock was lost: the node is closed\nnode: lock \"a\": lock was lost: the node is closed": txn.Release(),
		} {
			require.EqualError(t, err, text)
		}
		require.Equal(t, one.Status().Err, one.Ready(t.Context()))
		require.ErrorIs(t, context.Cause(lost.Context()), lost.Err())
	})
}

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
