package node_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A holder whose process is paused, as when a computer sleeps, stays the holder: no other node gets
// the lock, however long it takes. Afterwards all go on. (L12)
func TestPause(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		for _, holder := range g.members {
			held := g.acquire(holder, "x")
			g.net.Pause(holder)
			var waiting []<-chan outcome
			for _, id := range g.members {
				if id != holder {
					waiting = append(waiting, g.acquireLater(t.Context(), id, "x"))
				}
			}
			time.Sleep(time.Hour)
			for _, w := range waiting {
				requireWaiting(t, w)
			}
			g.net.Resume(holder)
			time.Sleep(time.Minute)
			for _, w := range waiting {
				requireWaiting(t, w)
			}
			require.NoError(t, held.Err())
			require.NoError(t, held.Release())
			requireTurns(t, held.Fence(), waiting)
		}
	})
}

// When a node notices that its link was closed from outside, waiting calls return and held locks
// are lost. Close does not wait for a farewell that nobody can hear. (L31)
func TestLinkClosedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := nodetest.ContextFor(t, time.Hour)
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		members := []dmutex.NodeID{1, 2, 3}
		var nodes []*node.Node
		var links []transport.Link
		for _, id := range members {
			l := net.Link(id)
			n, err := node.OpenStrict(ctx, id, members, l, node.Config{})
			require.NoError(t, err)
			nodes, links = append(nodes, n), append(links, l)
		}
		held, err := nodes[1].Mutex("x").Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, nodes[2].Ready(ctx))
		for _, l := range links {
			require.NoError(t, l.Close())
		}
		_, err = nodes[1].Mutex("y").Acquire(ctx)
		require.ErrorIs(t, err, transport.ErrClosed)
		require.ErrorIs(t, nodes[1].Status().Err, transport.ErrClosed)
		require.ErrorIs(t, nodes[1].Status().Err, node.ErrStopped)
		require.ErrorIs(t, held.Err(), node.ErrLost, "the others may go on with another process under its number")
		require.ErrorIs(t, held.Release(), transport.ErrClosed)
		begun := time.Now()
		for _, n := range nodes { // so far only the second has noticed
			require.ErrorIs(t, n.Close(ctx), transport.ErrClosed)
		}
		require.Less(t, time.Since(begun), time.Second)
	})
}

// A node that is paused while it waits keeps its place in the queue.
func TestPauseWhileWaiting(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(1, "x")
		waiting := g.acquireLater(t.Context(), 2, "x")
		g.net.Pause(2)
		require.NoError(t, held.Release())
		time.Sleep(time.Hour)
		g.net.Resume(2)
		requireTurns(t, held.Fence(), []<-chan outcome{waiting})
	})
}

// A holder that is heard but does not hear, or the reverse, keeps the lock like one that is cut off
// in both directions.
func TestOneWay(t *testing.T) {
	for _, direction := range []struct {
		name string
		cut  func(n *memlink.Network, id, other dmutex.NodeID)
	}{
		{"not heard", func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(id, other) }},
		{"not hearing", func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(other, id) }},
	} {
		t.Run(direction.name, func(t *testing.T) {
			each(t, strict, func(t *testing.T, g *group) {
				g.open(3)
				held := g.acquire(2, "x")
				direction.cut(g.net, 2, 1)
				direction.cut(g.net, 2, 3)
				waiting := []<-chan outcome{
					g.acquireLater(t.Context(), 1, "x"),
					g.acquireLater(t.Context(), 3, "x"),
				}
				time.Sleep(time.Hour)
				for _, w := range waiting {
					requireWaiting(t, w)
				}
				require.NoError(t, held.Err())
				g.net.Heal()
				require.NoError(t, held.Release())
				requireTurns(t, held.Fence(), waiting)
			})
		})
	}
}

func requireWaiting(t *testing.T, waiting <-chan outcome) {
	t.Helper()
	require.Empty(t, waiting, "granted too early")
}

// requireTurns requires that the waiters get the lock one after another, with the next fences.
func requireTurns(t *testing.T, fence uint64, waiting []<-chan outcome) {
	t.Helper()
	var fences []uint64
	for range waiting {
		var o outcome
		select { // whichever is first
		case o = <-waiting[0]:
		case o = <-waiting[len(waiting)-1]:
		}
		require.NoError(t, o.err)
		fences = append(fences, o.held.Fence())
		require.NoError(t, o.held.Release())
	}
	for i, f := range fences {
		require.Equal(t, fence+uint64(i)+1, f)
	}
}
