package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// freeze leaves node 1 with an installed but inactive view: the report of node 3, just
// restarted, never reaches it.
func (g *group) freeze() {
	g.crash(3)
	g.net.Cut(3, 1)
	g.start(3)
	time.Sleep(2 * time.Second)
	require.False(g.t, g.node(1).Status().View.Acts, "%+v", g.node(1).Status())
}

// A call made during a view change completes after it. A call canceled during the change
// leaves nothing behind.
func TestUseWhileTheGroupChanges(t *testing.T) {
	for _, use := range []struct {
		name string
		do   func(ctx context.Context, g *group) error // at node 1, which knows that 2 holds "held"
	}{
		{"Acquire", func(ctx context.Context, g *group) error {
			h, err := g.mutex(1, "x").Acquire(ctx)
			if err != nil {
				return err
			}
			return h.Release()
		}},
		{"TryAcquire", func(ctx context.Context, g *group) error {
			h, err := g.mutex(1, "x").TryAcquire(ctx)
			if err != nil {
				return err
			}
			return h.Release()
		}},
		{"TryAcquire, busy", func(ctx context.Context, g *group) error {
			if _, err := g.mutex(1, "held").TryAcquire(ctx); !errors.Is(err, node.ErrBusy) {
				return fmt.Errorf("not busy: %w", err)
			}
			return nil
		}},
		{"Txn", func(ctx context.Context, g *group) error {
			txn, err := g.node(1).AcquireAll(ctx, "x", "y")
			if err != nil {
				return err
			}
			return txn.Release()
		}},
		{"Campaign", func(ctx context.Context, g *group) error {
			return g.node(1).Election("x").Campaign(ctx, func(context.Context, uint64) error { return nil })
		}},
		{"Ask", func(ctx context.Context, g *group) error { return g.mutex(1, "held").Ask(ctx) }},
	} {
		t.Run(use.name, func(t *testing.T) {
			each(t, strict, func(t *testing.T, g *group) {
				g.open(3)
				held := g.acquire(2, "held")
				kept := g.acquire(1, "kept")
				g.freeze()
				begin := func(ctx context.Context) <-chan error {
					done := make(chan error, 1)
					go func() { done <- use.do(ctx, g) }()
					synctest.Wait()
					return done
				}
				quit, cancel := context.WithCancel(t.Context())
				canceled, first, second := begin(quit), begin(t.Context()), begin(t.Context())
				cancel()
				err := <-canceled
				require.ErrorIs(t, err, context.Canceled)
				require.ErrorContains(t, err, "waiting for members 3 (web-3, silent for ")
				require.NoError(t, kept.Release())
				time.Sleep(time.Second)
				require.Empty(t, first)
				require.NoError(t, held.Err())

				last := nodetest.ContextFor(t, time.Hour)
				acts := make(chan error, 1)
				go func() { // exactly when the view becomes active
					err := g.node(1).Ready(last)
					if err == nil {
						err = use.do(last, g)
					}
					acts <- err
				}()
				g.net.Heal()
				for _, done := range []<-chan error{first, second, acts} {
					if err := <-done; err != nil { // concurrent tries may all find the lock busy
						require.Equal(t, "TryAcquire", use.name)
						require.ErrorIs(t, err, node.ErrBusy)
					}
				}
				synctest.Wait()
				require.Equal(t, use.name == "Ask", isAsked(held))
				require.NoError(t, held.Release())
				require.NoError(t, g.acquire(3, "kept").Release())
				require.NoError(t, g.acquire(3, "held").Release())
				time.Sleep(time.Minute)
				for _, name := range []string{"x", "y", "held", "kept", "election/x"} {
					require.Equal(t, node.MutexStatus{}, g.mutex(1, name).Status())
				}
			})
		})
	}
}

// An observation continues through a view change, and reports the leader that was elected
// meanwhile.
func TestObserveWhileTheGroupChanges(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		seen := g.observe(1, "x")
		g.freeze()
		late := g.observe(1, "x")
		leader := g.campaignLater(t.Context(), 2, "x")
		require.Empty(t, *seen)
		g.net.Heal()
		pass(time.Minute)
		require.NotNil(t, leader.ctx)
		require.Equal(t, []sight{{2, leader.epoch}}, *seen)
		require.Equal(t, *seen, *late)
		leader.stop <- nil
		require.NoError(t, <-leader.done)
	})
}

// LESSONS L54: the error of a call that ends while a member is missing names that member, and says
// what is known about it.
func TestErrorsNameTheMissing(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.crash(3)
		g.net.Cut(3, 1)
		g.net.Cut(3, 2)
		time.Sleep(time.Minute)
		left := g.node(2)
		g.node(2).forget()
		err := left.Close(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "node: close: members [3")

		g.start(3)
		g.start(2) // the view waits for 3
		time.Sleep(time.Minute)
		m := g.mutex(1, "x")
		_, err = m.Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `lock "x"`)
		require.ErrorContains(t, err, "waiting for")
		require.ErrorContains(t, err, "3 (web-3, silent for")
		err = g.node(1).Evict(nodetest.ContextFor(t, time.Second), 2)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "3 (web-3, silent for")
		g.net.Heal()
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// Many holds are carried over in reports of many parts, even if the parts exceed what may be in
// flight to a peer.
func TestManyHoldsAreCarriedOver(t *testing.T) {
	count := 20_000
	if racetest.On || testing.Short() {
		count = 5_000
	}
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		name := func(i int) string { return fmt.Sprintf("%0240d", i) } // together more than a send buffer
		var held []lock.Held
		for i := range count {
			held = append(held, g.acquire(1, name(i)))
		}
		g.crash(3)
		g.net.Cut(1, 2) // 1 keeps reporting what it holds, and gets no acknowledgment
		g.start(3)
		time.Sleep(time.Minute)
		g.net.Heal()
		require.NoError(t, g.node(3).Ready(t.Context()))
		for i := 0; i < count; i += count / 50 {
			require.NoError(t, held[i].Err())
			_, err := g.mutex(3, name(i)).TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
		}
		waiting := g.acquireLater(t.Context(), 2, name(count-1))
		for _, h := range held {
			require.NoError(t, h.Release())
		}
		got := granted(t, waiting)
		require.Greater(t, got.Fence(), held[count-1].Fence())
		require.NoError(t, got.Release())
		for _, n := range g.all {
			require.NoError(t, n.Status().Err)
			require.Zero(t, n.Status().Refused)
			require.EqualValues(t, 2, n.Status().View.Changes+map[bool]uint64{true: 1}[n.Self() == 3])
		}
	})
}

// Messages for a view that is not active yet are buffered.
func TestEarly(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		g.freeze()
		require.NoError(t, g.node(2).Ready(t.Context()))
		waiting := g.acquireLater(t.Context(), 2, "x")
		g.net.Heal()
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L64, L66: an evicted process that is alive notices when it hears from the others. It has
// lost what it held.
func TestEvictedAlive(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		lost := g.acquire(1, "x")
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3})
		require.NoError(t, g.node(2).Evict(t.Context(), 1))
		next := g.acquire(2, "x")
		require.Greater(t, next.Fence(), lost.Fence())
		require.NoError(t, lost.Err(), "it cannot know yet")
		g.net.Heal()
		time.Sleep(10 * time.Second)
		require.ErrorIs(t, lost.Err(), node.ErrEvicted)
		require.ErrorIs(t, lost.Err(), node.ErrLost)
		require.ErrorIs(t, lost.Err(), node.ErrStopped)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrEvicted)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrStopped)
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrEvicted)
		require.NoError(t, next.Release())
		require.NoError(t, g.acquire(3, "x").Release())
	})
}
