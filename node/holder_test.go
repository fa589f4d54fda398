package node_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

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
