package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L11, L22, L59, L61, L66, L67, L68: a crashed member rejoins when it restarts. The locks
// that it held are free at once, the others keep theirs, and fences rise.
func TestRestart(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		kept, lost := g.acquire(1, "kept"), g.acquire(2, "lost")
		waiting := g.acquireLater(t.Context(), 3, "lost")
		g.crash(2)
		time.Sleep(time.Minute)
		require.Empty(t, waiting, "the lock of a process that may be alive was granted")
		g.start(2)
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, kept.Err())
		later := g.acquireLater(t.Context(), 2, "kept")
		time.Sleep(time.Second)
		require.Empty(t, later, "two holders")
		require.NoError(t, kept.Release())
		again := <-later
		require.NoError(t, again.err)
		require.Greater(t, again.held.Fence(), kept.Fence())
		require.NoError(t, again.held.Release())
		require.NoError(t, h.Release())
	})
}

// A lock that is released during a view change is free after it.
func TestReleaseWhileTheGroupChanges(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		waiting := g.acquireLater(t.Context(), 3, "x")
		g.crash(2)
		g.net.Cut(2, 3) // 3 does not hear 2's report, and does not act
		g.start(2)
		time.Sleep(time.Second)
		require.NoError(t, held.Release())
		time.Sleep(time.Second)
		g.net.Heal()
		require.NoError(t, granted(t, waiting).Release())
	})
}

// LESSONS L19, L53: Close takes a few round trips, whatever the others do, and the others go on.
func TestLeave(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		held := g.acquire(3, "x")
		mine := g.acquire(1, "y")
		quitting, cancel := context.WithCancel(t.Context())
		withdrawn := g.acquireLater(quitting, 1, "x")
		cancel()
		require.ErrorIs(t, (<-withdrawn).err, context.Canceled)
		waiting, next := g.acquireLater(t.Context(), 2, "x"), g.acquireLater(t.Context(), 4, "y")
		begun := time.Now()
		require.NoError(t, g.node(1).Close(t.Context()))
		require.Less(t, time.Since(begun), 100*time.Millisecond)
		require.ErrorIs(t, mine.Err(), node.ErrLost)
		h := granted(t, next)
		require.Greater(t, h.Fence(), mine.Fence())
		require.NoError(t, h.Release())
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		h = granted(t, waiting)
		require.Greater(t, h.Fence(), held.Fence())
		require.NoError(t, h.Release())
		g.start(1) // and it comes back
		require.NoError(t, g.acquire(1, "x").Release())
		require.Equal(t, []dmutex.NodeID{1, 2, 3, 4}, g.node(3).Status().View.Members)
	})
}

// LESSONS L70: all may leave, at once or one after another; the last needs nobody.
func TestAllLeave(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		require.NoError(t, g.acquire(2, "x").Release())
		begun := time.Now()
		require.NoError(t, g.node(1).Close(t.Context()))
		errs := make(chan error)
		for _, id := range []dmutex.NodeID{2, 3} {
			go func() { errs <- g.node(id).Close(t.Context()) }()
		}
		require.NoError(t, <-errs)
		require.NoError(t, <-errs)
		require.Less(t, time.Since(begun), time.Second)
		require.NoError(t, g.acquire(4, "x").Release())
		begun = time.Now()
		require.NoError(t, g.node(4).Close(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
	})
}

// LESSONS L59: fences rise even if all members were killed and started again.
func TestRestartOfAll(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		nodetest.Today()
		g.open(3)
		last := g.acquire(1, "x").Fence()
		for range 3 {
			for _, id := range g.members {
				g.crash(id)
			}
			time.Sleep(100 * time.Millisecond)
			for _, id := range g.members {
				g.start(id)
			}
			h := g.acquire(2, "x")
			require.Greater(t, h.Fence(), last)
			last = h.Fence()
		}
	})
}

// LESSONS L66: Evict lets the others go on without a crashed member, and the member may come back.
func TestEvict(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		lost := g.acquire(1, "x")
		g.crash(1)
		waiting := g.acquireLater(t.Context(), 2, "x")
		time.Sleep(time.Minute)
		began := time.Now()
		require.NoError(t, g.node(3).Evict(t.Context(), 1))
		require.Less(t, time.Since(began), time.Second, "Evict needs no second try")
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, h.Release())
		g.start(1)
		require.NoError(t, g.acquire(1, "x").Release())
		require.ErrorIs(t, g.node(2).Evict(t.Context(), 2), dmutex.ErrMisuse)
		require.ErrorIs(t, g.node(2).Evict(t.Context(), 7), dmutex.ErrMisuse)
	})
}

// The duration of a view change counts from the last grant, even if a member crashed during the
// change and another view had to follow.
func TestTookOfAnInterruptedChange(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		time.Sleep(time.Minute)
		g.freeze()
		g.crash(3)
		time.Sleep(time.Minute)
		g.net.Heal()
		g.start(3)
		require.NoError(t, g.acquire(3, "x").Release())
		require.Greater(t, g.node(1).Status().View.Took, time.Minute)
	})
}

// The time in which a process waits for the first members is no part of a view change.
func TestTookOfTheFirstView(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		time.Sleep(time.Minute)
		g.start(2)
		require.NoError(t, g.acquire(1, "x").Release())
		require.Less(t, g.node(1).Status().View.Took, time.Second)
	})
}

// Evict is about the process that the operator saw. If that member restarts while Evict waits for
// another, its new process is not evicted.
func TestEvictThoughRestarted(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		g.crash(1)
		g.crash(3)
		evicted := make(chan error)
		go func() { evicted <- g.node(2).Evict(t.Context(), 1) }()
		time.Sleep(5 * time.Second)
		g.start(1)
		err := <-evicted
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "member 1 has restarted")
		g.start(3)
		require.NoError(t, g.acquire(1, "x").Release())
		require.Equal(t, []dmutex.NodeID{1, 2, 3}, g.node(2).Status().View.Members)
	})
}

// Two crashed members are evicted together, because each eviction alone would wait for the other
// member. Evict also works in a group that does not act because a member crashed during a view
// change.
func TestEvictTwo(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(4)
		lost := g.acquire(4, "x")
		waiting := g.acquireLater(t.Context(), 1, "x")
		g.crash(3)
		g.net.Cut(4, 1)
		g.net.Cut(4, 2)
		g.start(3) // 1 and 2 wait for a view with 4
		time.Sleep(time.Second)
		g.crash(4)
		g.crash(3)
		time.Sleep(time.Second)
		require.NoError(t, g.node(2).Evict(t.Context(), 3, 4))
		h := granted(t, waiting)
		require.Greater(t, h.Fence(), lost.Fence())
		require.NoError(t, h.Release())
		require.Equal(t, []dmutex.NodeID{1, 2}, g.node(1).Status().View.Members)
	})
}

// If the algorithm refuses a view, nothing is granted, and errors say why, until the other members
// are back.
func TestViewThatTheAlgorithmRefuses(t *testing.T) {
	all := func(dmutex.NodeID) []dmutex.NodeID { return []dmutex.NodeID{1, 2, 3} }
	bubble(t, strict, maekawa.With(all), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		require.NoError(t, g.node(3).Close(t.Context()))
		_, err := g.mutex(2, "x").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "[1 2]")
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		g.start(3)
		require.NoError(t, g.acquire(2, "x").Release())
	})
}

// A member that restarts costs the group few epochs, and not one for each member that asks for the
// view. Epochs must not overtake the clock.
func TestRestartTakesFewEpochs(t *testing.T) {
	for _, delay := range []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond, time.Millisecond} {
		for killed := dmutex.NodeID(1); killed <= 5; killed++ {
			cfg := memlink.Config{Seed: uint64(killed), MinDelay: delay, MaxDelay: delay * 3 / 2}
			bubble(t, strict, ricart.New, cfg, func(t *testing.T, g *group) {
				g.open(5)
				time.Sleep(10 * time.Second)
				before := g.node(killed).Status().View.Epoch
				g.crash(killed)
				time.Sleep(20 * time.Millisecond)
				began := time.Now()
				n := g.start(killed)
				require.NoError(t, n.Ready(t.Context()))
				require.LessOrEqual(t, n.Status().View.Epoch, before+5, "member %v, %v one way", killed, delay)
				require.Less(t, time.Since(began), time.Second)
			})
		}
	}
}
