package node_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
)

// A store breaks its contract if it does not return when its context has ended. Open and Close
// return nevertheless, and Close says why the record still has the node. At most one call of the
// store is left behind.
func TestLeaseStuckStore(t *testing.T) {
	for _, joined := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			var stuck atomic.Bool
			var calls atomic.Int32 // that are stuck
			stuck.Store(!joined)
			released := make(chan struct{})
			g.before = func(context.Context, bool) error {
				if stuck.Load() {
					calls.Add(1)
					<-released // even if the context has ended
				}
				return nil
			}
			s := g.join()
			if joined {
				require.NoError(t, s.Ready(nodetest.ContextFor(t, 2*leaseOf)))
				stuck.Store(true)
			}
			time.Sleep(3 * leaseOf)
			_, err := s.Mutex("x").TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrStore)
			require.ErrorContains(t, err, "the store does not return")

			began := time.Now()
			err = s.Close(nodetest.ContextFor(t, time.Second))
			s.forget()
			require.Less(t, time.Since(began), 3*time.Second)
			if joined {
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, node.ErrStore)
			}
			require.EqualValues(t, 1, calls.Load())
			close(released) // or the bubble would not end
		})
	}
}

// What a store returns after it was left behind is dropped. With the race detector this test shows that
// nobody looks at it any more.
func TestLeaseLeftBehindStore(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		var late atomic.Bool
		g.after = func(context.Context, bool) error {
			if late.Load() {
				time.Sleep(2 * leaseOf) // whatever the context says
			}
			return nil
		}
		s := g.join()
		require.NoError(t, s.Ready(nodetest.ContextFor(t, 2*leaseOf)))
		late.Store(true)
		time.Sleep(5 * leaseOf)
		_, err := s.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrStore)
		late.Store(false)
		require.NoError(t, s.Ready(nodetest.ContextFor(t, 5*leaseOf)))
	})
}

// denied makes the stores of processes that start later refuse the calls that are denied.
func (g *group) denied() (loads, swaps *atomic.Bool) {
	loads, swaps = new(atomic.Bool), new(atomic.Bool)
	g.before = func(_ context.Context, swap bool) error {
		if swap && swaps.Load() || !swap && loads.Load() {
			return errDenied
		}
		return nil
	}
	return loads, swaps
}

var errDenied = fmt.Errorf("%w: permission denied", store.ErrUnusable)

// If only an operator can mend the store, a node that has not acted yet stops at once.
func TestLeaseUnusableStore(t *testing.T) {
	for _, loads := range []bool{true, false} {
		bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
			deniesLoads, deniesSwaps := g.denied()
			deniesLoads.Store(loads)
			deniesSwaps.Store(!loads)
			began := time.Now()
			s := g.join()
			require.ErrorIs(t, s.Ready(t.Context()), store.ErrUnusable)
			_, err := s.Mutex("x").Acquire(t.Context())
			require.ErrorIs(t, err, store.ErrUnusable)
			require.NotErrorIs(t, err, node.ErrStore)
			require.EqualError(t, s.Status().Err, "node: store: unusable until this is mended: permission denied")
			require.Less(t, time.Since(began), leaseOf/10)
			require.NoError(t, s.Close(nodetest.ContextFor(t, time.Second)))
		})
	}
}

// A member that has acted goes on when the store is mended.
func TestLeaseUnusableStoreLater(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		loads, swaps := g.denied()
		s := g.join()
		require.NoError(t, s.Ready(nodetest.ContextFor(t, 2*leaseOf)))
		loads.Store(true)
		swaps.Store(true)
		time.Sleep(2 * leaseOf)
		_, err := s.Mutex("x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrStore)
		require.ErrorIs(t, err, store.ErrUnusable)
		loads.Store(false)
		swaps.Store(false)
		require.NoError(t, s.Mutex("x").Do(nodetest.ContextFor(t, leaseOf), nodetest.Nothing))
	})
}

// Even if strangers send frames all the time, a member excludes a crashed member, and can leave.
func TestLeaseGreetings(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		g.delayed(20 * time.Millisecond)
		s := g.join()
		over := make(chan struct{})
		defer close(over)
		go func() { // strangers are faster than the store
			for {
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
					s.host.Deliver(999, nil)
				}
			}
		}()
		require.NoError(t, s.Ready(nodetest.ContextFor(t, 2*leaseOf)))
		g.before = nil
		other := g.join()
		other.acquire("x")
		waiting := s.acquireLater(t.Context(), "x")
		began := time.Now()
		other.crash()
		require.NoError(t, granted(t, waiting).Release())
		require.Less(t, time.Since(began), leaseOf*17/10)
		began = time.Now()
		require.NoError(t, s.Close(t.Context()))
		require.Less(t, time.Since(began), time.Second)
	})
}

// An outage of everything, as when the link and the record are on one server, excludes nobody, even
// if one member is back before the others.
func TestLeaseOutageOfAll(t *testing.T) {
	for _, members := range []int{2, 3} {
		for _, lasts := range []time.Duration{2 * time.Second, 4 * time.Second, 6 * time.Second, 9 * time.Second, 15 * time.Second} {
			for _, later := range []time.Duration{0, 2 * time.Second} {
				bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
					all := slices.Clone(g.open(members))
					time.Sleep(3 * time.Second) // some renewal is under way
					for _, s := range all {
						s.isolate(true)
					}
					time.Sleep(lasts)
					for _, s := range all {
						s.isolate(false)
						time.Sleep(later / time.Duration(members-1))
					}
					began := time.Now()
					for _, s := range all {
						require.NoError(t, s.acquire("x").Release())
					}
					require.Less(t, time.Since(began), 4*time.Second)
					time.Sleep(2 * leaseOf)
					for _, s := range all {
						st := s.Status()
						require.Zero(t, st.Lease.Exclusions, "%v without a server", lasts)
						require.Len(t, st.View.Members, members)
					}
				})
			}
		}
	}
}

// If the store answers, a crashed member is excluded in time, although an outage of everything
// excludes nobody.
func TestLeaseCrashOfOneOfTwo(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		for range 5 {
			all[0].acquire("x")
			waiting := all[1].acquireLater(t.Context(), "x")
			began := time.Now()
			all[0].crash()
			all[1].sees(1)
			// Silent after an eighth, checked every twentieth, excluded after a third of a lease.
			require.Less(t, time.Since(began), leaseOf/8+leaseOf/20+leaseOf/3+50*time.Millisecond)
			require.NoError(t, granted(t, waiting).Release())
			all = []*member{g.join(), all[1]}
			require.NoError(t, all[0].acquire("y").Release())
		}
	})
}

// An amnesiac is a store that can lose everything, and says so, as a process has opened it.
type amnesiac struct {
	store.Store
	histories *atomic.Int64 // of all processes
	last      atomic.Int64  // that this one knows; 0 if it knows none
}

func (f *amnesiac) Load(ctx context.Context) ([]byte, store.Revision, error) {
	value, rev, err := f.Store.Load(ctx)
	now := f.histories.Load()
	last := f.last.Swap(now)
	switch {
	case err != nil:
		return value, rev, err
	case len(value) == 0 && now > 1:
		return nil, rev, store.ErrForgotten
	case last != 0 && last != now:
		return nil, "", store.ErrForgotten
	}
	return value, rev, nil
}

// When the store has forgotten the record, the locks are lost, and the members form a group again by themselves, in which
// locks are granted after a lease. Waiters keep waiting, and fences rise.
func TestLeaseForgotten(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		var histories atomic.Int64
		histories.Store(1)
		g.wrapStore = func(s store.Store) store.Store { return &amnesiac{Store: s, histories: &histories} }
		all := slices.Clone(g.open(3))
		for range 2 {
			held := all[0].acquire("x")
			waiting := all[1].acquireLater(t.Context(), "x")
			histories.Add(1)
			g.put("")
			began := time.Now()
			h := granted(t, waiting)
			require.GreaterOrEqual(t, time.Since(began), leaseOf)
			require.Less(t, time.Since(began), 2*leaseOf)
			require.Greater(t, h.Fence(), held.Fence())
			require.ErrorIs(t, held.Err(), node.ErrLost)
			require.ErrorIs(t, held.Err(), store.ErrForgotten)
			require.NoError(t, h.Release())
			for _, s := range all {
				require.NoError(t, s.acquire("y").Release())
				require.NoError(t, s.Status().Err)
				require.Len(t, s.Status().View.Members, 3)
			}
		}
	})
}
