package node_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L12: a holder whose process is paused, as when a computer sleeps, or that is heard but does not hear, or the
// reverse, stays the holder: no other node gets the lock, however long it takes. Afterwards all go on.
func TestPause(t *testing.T) {
	for name, away := range map[string]func(n *memlink.Network, id, other dmutex.NodeID){
		"paused":      func(n *memlink.Network, id, _ dmutex.NodeID) { n.Pause(id) },
		"not heard":   func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(id, other) },
		"not hearing": func(n *memlink.Network, id, other dmutex.NodeID) { n.Cut(other, id) },
	} {
		t.Run(name, func(t *testing.T) {
			each(t, strict, func(t *testing.T, g *group) {
				g.open(3)
				for _, holder := range g.members {
					held := g.acquire(holder, "x")
					var waiting []<-chan outcome
					for _, id := range g.members {
						if id != holder {
							away(g.net, holder, id)
							waiting = append(waiting, g.acquireLater(t.Context(), id, "x"))
						}
					}
					time.Sleep(time.Hour)
					require.Empty(t, waiting[0])
					require.Empty(t, waiting[1])
					g.net.Resume(holder)
					g.net.Heal()
					time.Sleep(time.Minute)
					require.Empty(t, waiting[0])
					require.Empty(t, waiting[1])
					require.NoError(t, held.Err())
					require.NoError(t, held.Release())
					requireTurns(t, held.Fence(), waiting)
				}
			})
		})
	}
}

// When a node notices that its link was closed from outside, waiting calls return and held locks
// are lost. Close does not wait for a farewell that nobody can hear. (L31)
func TestLinkClosedBefore(t *testing.T) {
	bubble(t, strict, nil, memlink.Config{}, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(3))
		held := g.acquire(2, "x")
		for _, s := range all {
			require.NoError(t, s.link.Close())
		}
		_, err := all[1].Mutex("y").Acquire(t.Context())
		require.ErrorIs(t, err, transport.ErrClosed)
		require.ErrorIs(t, all[1].Status().Err, transport.ErrClosed)
		require.ErrorIs(t, all[1].Status().Err, node.ErrStopped)
		require.ErrorIs(t, held.Err(), node.ErrLost, "the others may go on with another process under its number")
		require.ErrorIs(t, held.Release(), transport.ErrClosed)
		begun := time.Now()
		for _, s := range all { // so far only the second has noticed
			require.ErrorIs(t, s.Close(t.Context()), transport.ErrClosed)
		}
		require.Less(t, time.Since(begun), time.Second)
	})
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
