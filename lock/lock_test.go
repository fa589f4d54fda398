// Package lock_test tests that every lock of the module keeps the contract of package lock.
package lock_test

import (
	"context"
	"errors"
	network "net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/transport/memlink"
)

const lease = 10 * time.Second

var errAway = errors.New("away")

// A listener is where clients connect.
type listener struct {
	conns chan network.Conn
	done  chan struct{}
}

func (l listener) Accept() (network.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, network.ErrClosed
	}
}

func (l listener) Close() error       { close(l.done); return nil }
func (l listener) Addr() network.Addr { return nil }

// A system is a lock as two processes see it.
type system struct {
	one, two lock.Mutex
	named    [2]func(name string) lock.Mutex // the locks of other names
	trouble  func()                          // makes one lose what it holds
	over     func()                          // ends the trouble
	cause    error                           // of the loss, if it is known
	leased   bool                            // the loss is the end of a lease
}

// systems has a constructor for each lock. The system ends with the test.
var systems = map[string]func(t *testing.T) system{
	"member, strict": func(t *testing.T) system {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		nodes := strict(t, net, 2, ricart.New)
		return system{
			named: namesOf(nodes[0].Mutex, nodes[1].Mutex), over: func() {}, cause: node.ErrClosed,
			trouble: func() { require.NoError(t, nodes[0].Close(context.Background())) },
		}
	},
	"member, lease": func(t *testing.T) system {
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		stores, done := outages(t)
		nodes := openNodes(t, 2, func(id dmutex.NodeID) (*node.Node, error) {
			return node.Open(t.Context(), stores[id-1], net.Link(dmutex.None), node.Config{Lease: lease})
		})
		for len(nodes[0].Status().View.Members) < 2 || !nodes[0].Status().View.Acts {
			time.Sleep(lease / 100)
		}
		return system{
			named: namesOf(nodes[0].Mutex, nodes[1].Mutex), cause: node.ErrLease, leased: true,
			trouble: func() { stores[0].Outage(true) }, over: done,
		}
	},
	"client": func(t *testing.T) system {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		calls := listener{make(chan network.Conn), make(chan struct{})}
		n, err := node.Open(t.Context(), new(store.Memory), net.Link(dmutex.None), node.Config{
			Lease: lease, Clients: &node.Clients{Listeners: []network.Listener{calls}},
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close(context.Background())) })
		require.NoError(t, n.Ready(t.Context()))
		var away atomic.Bool // the connections of one
		var conn atomic.Pointer[network.Conn]
		open := func(away *atomic.Bool) *client.Client {
			c, err := client.New(client.Config{Members: []string{"a"}, Dial: func(context.Context, string) (network.Conn, error) {
				if away.Load() {
					return nil, errAway
				}
				near, far := network.Pipe()
				calls.conns <- far
				conn.CompareAndSwap(nil, &near)
				return near, nil
			}})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			return c
		}
		one := open(&away)
		require.NoError(t, acquire(t, one.Mutex("first")).Release())
		return system{
			named: namesOf(one.Mutex, open(new(atomic.Bool)).Mutex), cause: errAway, leased: true,
			trouble: func() { away.Store(true); (*conn.Load()).Close() }, over: func() { away.Store(false) },
		}
	},
	"record": func(t *testing.T) system {
		stores, bad := make(map[string]*store.Memory), []*outagetest.Store{}
		out := func(on bool) func() {
			return func() {
				for _, s := range bad {
					s.Outage(on)
				}
			}
		}
		open := func(name string) *outagetest.Store {
			if stores[name] == nil {
				stores[name] = new(store.Memory)
			}
			return outagetest.New(t, stores[name], outagetest.Faults{})
		}
		of := func(s store.Store, name string) lock.Mutex {
			m, err := storelock.New(s, name, lease)
			require.NoError(t, err)
			return m
		}
		one := func(name string) lock.Mutex {
			bad = append(bad, open(name))
			return of(bad[len(bad)-1], name)
		}
		two := func(name string) lock.Mutex { return of(open(name), name) }
		return system{named: namesOf(one, two), cause: context.DeadlineExceeded, leased: true, trouble: out(true), over: out(false)}
	},
	"test, suspended": func(t *testing.T) system {
		locks := newLocks()
		suspend := func() { locks.each(func(l *locktest.Lock) { l.Suspend(lease) }) }
		return system{named: namesOf(locks.open, locks.open), trouble: suspend, over: func() {}, leased: true}
	},
	"test, lost": func(t *testing.T) system {
		locks, why := newLocks(), errors.New("no network")
		lose := func() { locks.each(func(l *locktest.Lock) { l.Lose(why) }) }
		return system{named: namesOf(locks.open, locks.open), trouble: lose, over: func() {}, cause: why}
	},
}

// namesOf returns how two processes open locks.
func namesOf[M lock.Mutex](one, two func(name string) M) [2]func(name string) lock.Mutex {
	return [2]func(name string) lock.Mutex{
		func(name string) lock.Mutex { return one(name) },
		func(name string) lock.Mutex { return two(name) },
	}
}

// locks are those of locktest, by their names.
type locks struct{ all map[string]*locktest.Lock }

func newLocks() locks { return locks{make(map[string]*locktest.Lock)} }

func (l locks) open(name string) *locktest.Lock {
	if l.all[name] == nil {
		l.all[name] = locktest.New(name)
	}
	return l.all[name]
}

func (l locks) each(do func(*locktest.Lock)) {
	for _, one := range l.all {
		do(one)
	}
}

// outages returns two ways to one store. done ends an outage of the first.
func outages(t *testing.T) (ways [2]*outagetest.Store, done func()) {
	s := new(store.Memory)
	for i := range ways {
		ways[i] = outagetest.New(t, s, outagetest.Faults{})
	}
	return ways, func() { ways[0].Outage(false) }
}

// strict returns n members of a group in the strict mode.
func strict(t *testing.T, net *memlink.Network, n int, algorithm dmutex.Algorithm) []*node.Node {
	return openNodes(t, n, func(id dmutex.NodeID) (*node.Node, error) {
		return node.OpenStrict(t.Context(), id, dmutextest.Nodes(n), net.Link(id), node.Config{Algorithm: algorithm})
	})
}

func openNodes(t *testing.T, n int, open func(id dmutex.NodeID) (*node.Node, error)) (nodes []*node.Node) {
	for _, id := range dmutextest.Nodes(n) {
		n, err := open(id)
		require.NoError(t, err)
		t.Cleanup(func() { _ = n.Close(context.Background()) })
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(t, n.Ready(t.Context()))
	}
	return nodes
}

// each runs a test with every lock.
func each(t *testing.T, test func(t *testing.T, s system)) {
	for name, open := range systems {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(30 * 365 * 24 * time.Hour) // the clock of a bubble begins in the year 2000
				s := open(t)
				s.one, s.two = s.named[0]("x"), s.named[1]("x")
				test(t, s)
			})
		})
	}
}

func acquire(t *testing.T, m lock.Mutex) lock.Held {
	t.Helper()
	h, err := m.Acquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, h.Err())
	return h
}

// isFree acquires the lock and releases it.
func isFree(t *testing.T, m lock.Mutex, after lock.Held) {
	t.Helper()
	h := acquire(t, m)
	require.Greater(t, h.Fence(), after.Fence())
	require.NoError(t, h.Release())
}

// LESSONS L16, L17, L26, L33: Release ends its handle and no other, says why, and may be repeated.
func TestRelease(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		require.Equal(t, "x", s.one.Name())
		type key struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		h, err := s.one.Acquire(ctx)
		require.NoError(t, err)
		cancel()
		synctest.Wait()
		require.NoError(t, h.Err(), "ctx does not bound the hold")
		require.NoError(t, h.Context().Err())
		require.Equal(t, "value", h.Context().Value(key{}))

		require.NoError(t, h.Release())
		require.ErrorIs(t, h.Err(), lock.ErrReleased)
		require.Equal(t, h.Err(), context.Cause(h.Context()))
		require.False(t, h.Suspended())
		if !h.Until().IsZero() {
			require.False(t, h.Until().After(time.Now()))
		}
		for _, m := range []lock.Mutex{s.two, s.one} {
			next := acquire(t, m)
			require.Greater(t, next.Fence(), h.Fence())
			require.NoError(t, h.Release(), "again")
			require.NoError(t, next.Err())
			require.NoError(t, next.Release())
			require.ErrorIs(t, h.Err(), lock.ErrReleased)
			require.ErrorIs(t, context.Cause(next.Context()), lock.ErrReleased, "asked for after the end")
		}
	})
}

// LESSONS L35, L43, L50: TryAcquire does not wait for a holder, and Acquire does, until its context ends. That is the
// only deadline, and it bounds the wait only.
func TestWait(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		why := errors.New("never mind")
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		for _, ask := range []func(context.Context) (lock.Held, error){s.one.Acquire, s.one.TryAcquire} {
			h, err := ask(ended)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, why)
			require.True(t, h == nil)
		}
		h := acquire(t, s.one)
		for _, m := range []lock.Mutex{s.one, s.two} {
			began := time.Now()
			none, err := m.TryAcquire(t.Context())
			require.ErrorIs(t, err, lock.ErrBusy)
			require.ErrorContains(t, err, `lock "x"`)
			require.True(t, none == nil)
			require.Less(t, time.Since(began), lease/10)

			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(3*lease, func() { cancel(why) })
			none, err = m.Acquire(ctx)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, why)
			require.ErrorContains(t, err, `lock "x"`)
			require.True(t, none == nil)

			began = time.Now()
			late, cancelLate := context.WithTimeoutCause(t.Context(), 3*lease, why)
			none, err = m.Acquire(late)
			cancelLate()
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, why)
			require.True(t, none == nil)
			require.Equal(t, 3*lease, time.Since(began))
		}
		require.NoError(t, h.Err())
		granted := make(chan lock.Held)
		go func() {
			next, _ := s.two.Acquire(t.Context())
			granted <- next
		}()
		time.Sleep(lease)
		require.NoError(t, h.Release())
		next := <-granted
		require.Greater(t, next.Fence(), h.Fence())
		require.NoError(t, next.Release())
		isFree(t, s.one, next)
	})
}

// Goroutines of two processes hold the lock one at a time, and fences rise.
func TestExclusion(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		inside, last := 0, uint64(0)
		var working sync.WaitGroup
		for i := range 6 {
			m := []lock.Mutex{s.one, s.two}[i%2]
			working.Go(func() {
				for range 5 {
					require.NoError(t, m.Do(t.Context(), func(ctx context.Context, fence uint64) error {
						inside++
						require.Equal(t, 1, inside)
						require.Greater(t, fence, last)
						last = fence
						time.Sleep(lease / 100)
						inside--
						return ctx.Err()
					}))
				}
			})
		}
		working.Wait()
	})
}

// LESSONS L71: Do returns the error of its function, and releases the lock when the function has ended, however it does.
func TestDo(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		broken := errors.New("broken")
		ctx, cancel := context.WithCancel(t.Context())
		require.Equal(t, broken, s.one.Do(ctx, func(ctx context.Context, fence uint64) error {
			require.NoError(t, ctx.Err())
			cancel()
			<-ctx.Done()
			_, err := s.two.TryAcquire(t.Context())
			require.ErrorIs(t, err, lock.ErrBusy, "the end of ctx releases nothing")
			return broken
		}))
		require.ErrorIs(t, s.one.Do(ctx, func(context.Context, uint64) error { return nil }), context.Canceled)
		require.Panics(t, func() {
			_ = s.one.Do(t.Context(), func(context.Context, uint64) error { panic("f") })
		})
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_ = s.one.Do(t.Context(), func(context.Context, uint64) error { runtime.Goexit(); return nil })
		}()
		<-gone
		require.NoError(t, acquire(t, s.two).Release())

		err := s.one.Do(t.Context(), func(ctx context.Context, _ uint64) error {
			go s.trouble()
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), lock.ErrLost)
			s.over()
			return broken
		})
		require.ErrorIs(t, err, lock.ErrLost)
		require.ErrorIs(t, err, broken)
	})
}

// A lock is not lost before Until, is suspended before its lease ends, and stays lost.
func TestLoss(t *testing.T) {
	each(t, func(t *testing.T, s system) {
		h := acquire(t, s.one)
		for range 300 { // renewals
			require.False(t, h.Suspended())
			if until := h.Until(); !until.IsZero() {
				require.Greater(t, time.Until(until), lease/2)
			}
			time.Sleep(lease / 100)
		}
		go s.trouble()
		synctest.Wait()
		suspended := false
		for h.Context().Err() == nil {
			require.True(t, s.leased)
			until := h.Until()
			require.True(t, until.After(time.Now()))
			time.Sleep(min(lease/100, time.Until(until)-1))
			if require.NoError(t, h.Err()); h.Suspended() {
				suspended = true
			} else {
				require.False(t, suspended)
			}
			if time.Until(h.Until()) == 1 {
				time.Sleep(time.Nanosecond)
				synctest.Wait()
			}
		}
		require.Equal(t, s.leased, suspended)
		lost := h.Err()
		require.ErrorIs(t, lost, lock.ErrLost)
		require.Equal(t, lost, context.Cause(h.Context()))
		if s.cause != nil {
			require.ErrorIs(t, lost, s.cause)
		}
		s.over()
		time.Sleep(lease)
		require.Equal(t, lost, h.Err())
		require.False(t, h.Suspended())
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		require.ErrorIs(t, h.Release(), lock.ErrLost)
		isFree(t, s.two, h)
	})
}
