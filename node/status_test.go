package node_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// L78: who holds the lock, with which fence, since when, and who waits? Each node knows about
// itself. What it says about others is true, or missing.
func TestMutexStatus(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		require.Zero(t, g.mutex(2, "x").Status())
		h := g.acquire(2, "x")
		time.Sleep(5 * time.Second)
		later := []<-chan outcome{g.acquireLater(t.Context(), 2, "x"), g.acquireLater(t.Context(), 3, "x")}
		time.Sleep(2 * time.Second)
		later = append(later, g.acquireLater(t.Context(), 3, "x"))
		time.Sleep(3 * time.Second)

		holder, waiter := g.mutex(2, "x").Status(), g.mutex(3, "x").Status()
		home := locks.Home("x", []dmutex.NodeID{1, 2, 3})
		require.Equal(t, node.MutexStatus{Phase: dmutex.Held, Home: home, Holder: 2, HeldFor: 10 * time.Second, Fence: h.Fence(), Age: 10 * time.Second, Waiters: 1}, holder)
		require.Contains(t, []dmutex.NodeID{dmutex.None, 2}, waiter.Holder)
		waiter.Holder, waiter.WaitsFor = dmutex.None, nil
		require.Equal(t, node.MutexStatus{Phase: dmutex.Waiting, Home: home, Age: 5 * time.Second, Waiters: 2}, waiter)

		require.NoError(t, h.Release())
		time.Sleep(4 * time.Second)
		for range later { // the age of a hold does not include the wait
			i := slices.IndexFunc(later, func(c <-chan outcome) bool { return len(c) > 0 })
			h := (<-later[i]).held
			require.NotNil(t, h)
			self := dmutex.NodeID(3)
			if i == 0 {
				self = 2
			}
			st := g.mutex(self, "x").Status()
			require.Equal(t, self, st.Holder)
			require.Equal(t, h.Fence(), st.Fence)
			require.Equal(t, 4*time.Second, st.Age)
			require.NoError(t, h.Release())
			time.Sleep(4 * time.Second)
		}
	})
}

// L78: the coordinator knows every holder.
func TestCoordinatorKnowsTheHolder(t *testing.T) {
	bubble(t, both, central.At(2), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		h := g.acquire(3, "x")
		require.Equal(t, node.MutexStatus{Home: locks.Home("x", []dmutex.NodeID{1, 2, 3}), Holder: 3}, g.mutex(2, "x").Status())
		require.Equal(t, dmutex.None, g.mutex(1, "x").Status().Holder)
		time.Sleep(3 * time.Second)
		require.Equal(t, 3*time.Second, g.mutex(2, "x").Status().HeldFor, "since the coordinator has learned it")
		require.Equal(t, 3*time.Second, g.mutex(3, "x").Status().HeldFor, "by the holder itself")
		_, err := g.mutex(2, "x").TryAcquire(t.Context())
		require.EqualError(t, err, `node: lock "x": lock is busy: held by web-3 (node 3) for 3s`)
		_, err = g.mutex(3, "x").TryAcquire(t.Context())
		require.EqualError(t, err, `node: lock "x": lock is busy: held by this process for 3s`)
		_, err = g.mutex(3, "x").Acquire(nodetest.ContextFor(t, time.Second))
		require.EqualError(t, err, `node: lock "x": held by this process for 4s: context deadline exceeded`)
		require.NoError(t, h.Release())
		synctest.Wait()
		require.Zero(t, g.mutex(2, "x").Status())
		g.acquire(1, "x")
		time.Sleep(2 * time.Second)
		require.Equal(t, 2*time.Second, g.mutex(2, "x").Status().HeldFor, "of another holder")
		require.Zero(t, g.mutex(3, "x").Status().HeldFor, "who holds it is not known")
	})
}

// A new view knows the holders from its beginning, even if nobody asks about the lock for a long
// time.
func TestAgeOfAHolderAfterAViewChange(t *testing.T) {
	bubble(t, strict, central.At(2), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.acquire(3, "x")
		began := time.Now()
		time.Sleep(time.Minute)
		g.crash(1)
		g.start(1)
		time.Sleep(time.Minute)
		_, err := g.mutex(2, "x").TryAcquire(t.Context())
		require.ErrorContains(t, err, "lock is busy: held by web-3 (node 3) for 59.")
		require.Equal(t, g.node(2).Status().View.Age, g.mutex(2, "x").Status().HeldFor)
		require.Equal(t, time.Since(began), g.mutex(3, "x").Status().HeldFor, "the holder itself knows better")
	})
}

// Locks lists the locks in use, not those that are only remembered. The loop may use the locks, and
// may end early.
func TestLocks(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		for i := range 100 { // used once, now idle
			require.NoError(t, g.acquire(1, fmt.Sprint("old", i)).Release())
		}
		time.Sleep(time.Second)
		require.Empty(t, maps.Collect(g.node(1).Locks()))
		require.Empty(t, maps.Collect(g.node(2).Locks()))
		want := make(map[string]node.MutexStatus)
		var held []lock.Held
		for i := range 10 {
			name := fmt.Sprint("x", i)
			held = append(held, g.acquire(1, name))
			want[name] = g.mutex(1, name).Status()
			require.Equal(t, dmutex.Held, want[name].Phase)
		}
		require.Equal(t, want, maps.Collect(g.node(1).Locks()))
		seen := 0
		for name, st := range g.node(1).Locks() {
			require.Equal(t, st, g.mutex(1, name).Status()) // no deadlock
			if seen++; seen == 3 {
				break
			}
		}
		require.Equal(t, 3, seen)
		for _, h := range held {
			require.NoError(t, h.Release())
		}
		time.Sleep(time.Second)
		require.Empty(t, maps.Collect(g.node(1).Locks()))
	})
}

// Status has the sums over all locks in use.
func TestUsage(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		require.Zero(t, usage(g.node(1).Node))
		first := g.acquire(1, "x")
		time.Sleep(2 * time.Second)
		second, other := g.acquire(1, "y"), g.acquire(2, "z")
		var waiting []<-chan outcome
		for _, name := range []string{"x", "z", "z"} {
			waiting = append(waiting, g.acquireLater(t.Context(), 1, name))
		}
		time.Sleep(3 * time.Second)
		require.Equal(t, node.Status{
			Held: 2, Waiting: 1, Waiters: 3, OldestHold: 5 * time.Second, OldestWait: 3 * time.Second,
		}, usage(g.node(1).Node))
		for _, h := range []lock.Held{first, second, other} {
			require.NoError(t, h.Release())
		}
		for _, c := range waiting {
			require.NoError(t, (<-c).held.Release())
		}
		require.Zero(t, usage(g.node(1).Node))

		kept, began := g.acquire(1, "kept"), time.Now()
		g.crash(3)
		g.net.Cut(3, 1) // 1 does not hear 3's report. Holds and waits still count
		g.start(3)
		time.Sleep(2 * time.Second)
		require.False(t, g.node(1).Status().View.Acts)
		later := g.acquireLater(t.Context(), 1, "x")
		time.Sleep(time.Second)
		require.Equal(t, node.Status{
			Held: 1, Waiting: 1, Waiters: 1, OldestHold: time.Since(began), OldestWait: time.Second,
		}, usage(g.node(1).Node))
		require.Equal(t, dmutex.Held, g.mutex(1, "kept").Status().Phase)
		require.Equal(t, dmutex.Waiting, g.mutex(1, "x").Status().Phase)
		require.Equal(t, []dmutex.NodeID{3}, g.node(1).Status().View.Missing)
		g.net.Heal()
		require.NoError(t, (<-later).held.Release())
		require.NoError(t, kept.Release())
	})
}

// Status has the state of the stream to each peer.
func TestPeerStatus(t *testing.T) {
	delay := memlink.Config{MinDelay: 10 * time.Millisecond, MaxDelay: 10 * time.Millisecond}
	bubble(t, strict, ricart.New, delay, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		one := g.start(1)
		require.Equal(t, []node.PeerStatus{{ID: 2}, {ID: 3}}, one.Status().Peers)
		two, three := g.start(2), g.start(3)
		require.NoError(t, one.Ready(t.Context()))
		require.NoError(t, g.acquire(1, "x").Release())
		time.Sleep(time.Second)
		for _, p := range one.Status().Peers {
			require.Equal(t, g.node(p.ID).Status().Life, p.Life)
			require.NotZero(t, p.Life)
			require.GreaterOrEqual(t, p.RoundTrip, 20*time.Millisecond)
			require.LessOrEqual(t, p.RoundTrip, 25*time.Millisecond)
			require.Equal(t, node.PeerStatus{ID: p.ID, Name: fmt.Sprint("web-", p.ID), Life: p.Life, Met: true, InView: true, Silent: p.Silent, RoundTrip: p.RoundTrip}, p)
			require.InDelta(t, time.Second, p.Silent, float64(50*time.Millisecond))
		}
		require.NotEqual(t, two.Status().Life, three.Status().Life)

		g.net.Cut(1, 2)
		waits := g.acquireLater(t.Context(), 1, "x")
		time.Sleep(time.Minute)
		p := one.Status().Peers[0]
		require.EqualValues(t, 1, p.Unacked)
		require.InDelta(t, time.Minute+time.Second, p.Silent, float64(50*time.Millisecond))
		require.Positive(t, p.Backlog)
		require.Greater(t, p.Resent, uint64(5))
		require.Zero(t, one.Status().Peers[1].Backlog)
		require.Zero(t, one.Status().Peers[1].Unacked)
		g.net.Heal()
		require.NoError(t, (<-waits).held.Release())
		time.Sleep(time.Second)
		require.Zero(t, one.Status().Peers[0].Unacked)
		require.Zero(t, one.Status().Peers[0].Backlog)
		require.Less(t, one.Status().Peers[0].Silent, 2*time.Second)

		g.net.Cut(2, 1) // now the acknowledgments are lost
		_, err := g.mutex(1, "x").Acquire(nodetest.ContextFor(t, time.Minute))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotZero(t, two.Status().Peers[0].Repeated)
		g.net.Heal()
		time.Sleep(time.Minute)
		g.close(3)
		time.Sleep(time.Second)
		require.True(t, one.Status().Peers[1].Left)
		require.False(t, one.Status().Peers[1].InView)
		require.True(t, one.Status().Peers[0].InView)
		require.Equal(t, []dmutex.NodeID{1, 2}, one.Status().View.Members)
	})
}

// A node that has stopped, or is closed, is in no view that acts.
func TestStatusAfterStop(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(2)
		one, two := g.node(1), g.node(2)
		require.True(t, one.Status().View.Acts)
		time.Sleep(time.Minute)
		g.closeLink(1)
		g.close(2)
		time.Sleep(time.Second)
		for _, n := range []*member{one, two} {
			st := n.Status()
			require.Equal(t, st.Err, n.Ready(t.Context()))
			require.Error(t, st.Err)
			require.False(t, st.View.Acts)
			require.Less(t, st.View.Age, 10*time.Second, "since it has stopped")
		}
	})
}

// usage returns the part of the Status of a node that sums up its locks.
func usage(n *node.Node) node.Status {
	st := n.Status()
	return node.Status{
		Held: st.Held, Shared: st.Shared, Waiting: st.Waiting, Waiters: st.Waiters, OldestHold: st.OldestHold, OldestWait: st.OldestWait,
	}
}

// Every member learns who holds a lock, under every algorithm.
func TestHolder(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		ask := func(id dmutex.NodeID) node.Holder {
			h, err := g.mutex(id, "x").Holder(t.Context())
			require.NoError(t, err)
			return h
		}
		require.Zero(t, ask(1))
		held := g.acquire(3, "x")
		g.acquire(2, "y")
		time.Sleep(3 * time.Second)
		for _, id := range g.members {
			require.Equal(t, node.Holder{Node: 3, Name: "web-3", Fence: held.Fence(), Age: 3 * time.Second}, ask(id))
		}
		require.NoError(t, held.Release())
		require.Zero(t, ask(1))
		_, err := g.mutex(1, "").Holder(t.Context())
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	})
}

// The error of an Acquire that times out says who holds the lock, and for how long by the
// holder's own account, at every member and under every algorithm.
func TestTimeoutNamesTheHolder(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(3, "x")
		time.Sleep(3 * time.Second)
		for _, id := range []dmutex.NodeID{1, 2} {
			_, err := g.mutex(id, "x").Acquire(nodetest.ContextFor(t, 2*time.Second))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, fmt.Sprintf("held by web-3 (node 3) for %ds: ", 3+2*id))
		}
		_, err := g.mutex(1, "x").Acquire(nodetest.ContextFor(t, 100*time.Millisecond))
		require.ErrorContains(t, err, "held by web-3 (node 3) for 7.1s: ")
		require.NoError(t, held.Release())
	})
}

// A question about the holder of a lock takes no room that requests need. It is sent when there is
// room.
func TestQuestionLeavesRoom(t *testing.T) {
	bubble(t, leased, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(2, "x")
		g.net.Cut(1, 2)
		var waits []<-chan outcome
		for i := range 6000 {
			waits = append(waits, g.acquireLater(nodetest.ContextFor(t, 2*time.Second+time.Duration(i)*time.Microsecond), 1, "x"))
		}
		time.Sleep(3 * time.Second)
		require.Less(t, g.node(1).Status().Peers[0].Backlog, 70<<10)
		for _, w := range waits {
			require.ErrorIs(t, (<-w).err, context.DeadlineExceeded)
		}
		time.AfterFunc(time.Second, g.net.Heal)
		h, err := g.mutex(1, "x").Holder(nodetest.ContextFor(t, time.Minute)) // asks again when there is room
		require.NoError(t, err)
		require.Equal(t, held.Fence(), h.Fence)
		require.NoError(t, held.Release())
	})
}

// While a holder does not answer, the error of Holder names it. Once the group goes on without the
// holder, Holder returns.
func TestHolderIsGone(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		g.acquire(3, "x")
		g.crash(3)
		_, err := g.mutex(1, "x").Holder(nodetest.ContextFor(t, 5*time.Second))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `node: lock "x": no answer from 3 (web-3, silent for `)

		asked, m := make(chan error, 1), g.mutex(1, "x")
		go func() {
			h, err := m.Holder(t.Context())
			require.Zero(t, h)
			asked <- err
		}()
		require.NoError(t, g.node(2).Evict(t.Context(), 3))
		require.NoError(t, <-asked)

		// A process that restarts meanwhile holds nothing, and says so.
		go func() {
			h, err := m.Holder(t.Context())
			require.Zero(t, h)
			asked <- err
		}()
		g.crash(2)
		g.start(2)
		require.NoError(t, <-asked)

		g.net.Cut(1, 2)
		go func() {
			_, err := m.Holder(t.Context())
			asked <- err
		}()
		time.Sleep(time.Second)
		g.close(1)
		require.ErrorIs(t, <-asked, node.ErrClosed)
	})
}

// A member that was excluded while it asked who holds a lock, and is in no view for a while, asks again
// instead of saying that nobody does.
func TestLeaseHolderExcluded(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		held := all[1].acquire("x")
		exclude := func() {
			all[0].isolate(true)
			all[1].sees(1)
		}
		for range 3 { // so it pauses before it joins again
			exclude()
			all[0].isolate(false)
			for was := all[0].Self(); all[0].Self() == was; {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, all[0].Ready(t.Context()))
		}
		all[0].cut.Store(true)
		holder := make(chan node.Holder, 1)
		go func() {
			h, err := all[0].Mutex("x").Holder(nodetest.ContextFor(t, 10*leaseOf))
			require.NoError(t, err)
			holder <- h
		}()
		synctest.Wait()
		exclude()
		all[0].isolate(false)
		h := <-holder
		require.Equal(t, held.Fence(), h.Fence)
		require.Equal(t, all[1].Self(), h.Node)
	})
}
