package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// No member acts before all members have reported. Otherwise a restarted member could grant a held
// lock again.
func TestNobodyActsAlone(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		g.net.Partition([]dmutex.NodeID{1, 2}, []dmutex.NodeID{3})
		for _, id := range g.members {
			g.start(id)
		}
		_, err := g.mutex(1, "x").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "3 (never heard)")
		require.Equal(t, []dmutex.NodeID{3}, g.node(1).Status().View.Missing)
		g.crash(1) // this also heals the network
		g.start(1)
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// LESSONS L19: Close does not wait for locks that the node no longer uses.
func TestCloseAfterCancel(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(2, "x")
		ctx, cancel := context.WithCancel(t.Context())
		quitter := g.acquireLater(ctx, 1, "x")
		cancel()
		require.Error(t, (<-quitter).err)
		require.NoError(t, held.Release()) // now 1's withdrawn request has its turn
		time.Sleep(time.Second)
		held = g.acquire(2, "x")
		before := time.Now()
		require.NoError(t, g.node(1).Close(t.Context()))
		require.Less(t, time.Since(before), time.Second)
		require.NoError(t, held.Release())
	})
}

// LESSONS L53: a waiter that leaves does not keep the lock from the others, even after another has
// left. A waiter that crashed delays them until its process is back.
func TestWaitersLeaveOneByOne(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(5)
		held := g.acquire(2, "x")
		require.NoError(t, g.node(4).Close(t.Context()))
		waiting := g.acquireLater(t.Context(), 3, "x")
		crashed := g.acquireLater(t.Context(), 1, "x")
		last := g.acquireLater(t.Context(), 5, "x")
		require.NoError(t, g.node(3).Close(t.Context()))
		require.ErrorIs(t, (<-waiting).err, node.ErrClosed)
		g.crash(1)
		require.ErrorIs(t, (<-crashed).err, node.ErrClosed)
		g.start(1)
		require.NoError(t, held.Release())
		require.NoError(t, granted(t, last).Release())
	})
}

// A lock in use is not forgotten, however many idle locks there are.
func TestHeldIsRemembered(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.acquire(1, "x").Release()) // now x is idle
		held := g.acquire(1, "x")
		for i := range 2000 {
			require.NoError(t, g.acquire(1, fmt.Sprint("other ", i)).Release())
		}
		_, err := g.mutex(2, "x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
		next := g.acquireLater(t.Context(), 2, "x")
		require.NoError(t, held.Release())
		h := granted(t, next)
		require.Greater(t, h.Fence(), held.Fence())
		require.NoError(t, h.Release())
	})
}

// A node that forgets a lock keeps the highest clock of all forgotten locks, so its next request is
// later than all that it answered before.
func TestTimeIsRemembered(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		for range 50 { // 1's requests reach high times
			require.NoError(t, g.acquire(1, "x").Release())
		}
		g.net.Cut(3, 1) // 2 answers at once, 3's answer is delayed
		first := g.acquireLater(t.Context(), 1, "x")
		for i := range 2000 { // 2 answers these too, and forgets x
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			_, err := g.mutex(1, fmt.Sprint("other ", i)).Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		second := g.acquireLater(t.Context(), 2, "x")
		time.Sleep(time.Minute)
		g.net.Heal()
		h := granted(t, first)
		select {
		case <-second:
			require.Fail(t, "two holders")
		case <-time.After(time.Minute):
		}
		require.NoError(t, h.Release())
		require.NoError(t, granted(t, second).Release())
	})
}

// LESSONS L3, L20, L23: a grant that arrives while its wait is canceled goes to the caller or is
// given back.
func TestGrantMeetsCancel(t *testing.T) {
	procs := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(procs) }) // the waiter runs after both the cancel and the grant
	each(t, both, func(t *testing.T, g *group) {
		g.open(1)
		for range 100 {
			held := g.acquire(1, "x")
			ctx, cancel := context.WithCancel(t.Context())
			waiting := g.acquireLater(ctx, 1, "x")
			cancel()
			require.NoError(t, held.Release())
			if o := <-waiting; o.err == nil {
				require.NoError(t, o.held.Release())
			} else {
				require.ErrorIs(t, o.err, context.Canceled)
			}
		}
		require.NoError(t, g.acquire(1, "x").Release())
	})
}

// Members start, close and crash in any order before all are up. After that the group works.
func TestStartInAnyOrder(t *testing.T) {
	for seed := range uint64(100) {
		net := memlink.Config{MinDelay: time.Millisecond, MaxDelay: 3 * time.Millisecond, Loss: float64(seed%2) / 5, Seed: seed}
		bubble(t, both, ricart.New, net, func(t *testing.T, g *group) {
			luck := rand.New(rand.NewPCG(seed, 0))
			nodetest.Today()
			g.members = []dmutex.NodeID{1, 2, 3}
			for range luck.IntN(8) {
				id := dmutex.NodeID(1 + luck.IntN(20)/9) // 3 is seldom there
				switch {
				case g.node(id) == nil:
					g.start(id)
				case luck.IntN(2) == 0:
					g.close(id)
				default:
					g.crash(id)
				}
				time.Sleep(nodetest.UpTo(luck, 60*time.Millisecond))
			}
			for _, id := range g.members {
				if g.node(id) == nil {
					g.start(id)
				}
			}
			ctx := nodetest.ContextFor(t, time.Minute)
			for _, id := range g.members {
				h, err := g.mutex(id, "x").Acquire(ctx)
				require.NoError(t, err, "seed %d, node %d", seed, id)
				require.NoError(t, h.Release())
			}
		})
	}
}

// All members close within milliseconds of each other, over a slow network. None waits for a member
// that is gone.
func TestCloseTogetherOverASlowNetwork(t *testing.T) {
	for seed := range uint64(40) {
		cfg := memlink.Config{MinDelay: time.Millisecond / 2, MaxDelay: 2 * time.Millisecond, Seed: seed}
		bubble(t, both, ricart.New, cfg, func(t *testing.T, g *group) {
			luck := rand.New(rand.NewPCG(seed, 0))
			g.open(3)
			var wg sync.WaitGroup
			for _, n := range g.all {
				id := n.id
				after := nodetest.UpTo(luck, time.Millisecond<<(seed%8))
				wg.Go(func() {
					time.Sleep(after)
					require.NoError(t, n.Close(nodetest.ContextFor(t, time.Minute)), "node %d, seed %d", id, seed)
				})
			}
			wg.Wait()
		})
	}
}
