package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// One that has met everybody does not act before everybody has: otherwise it
// could restart and grant again, and those that had not met everybody would
// not mind.
func TestNobodyActsAlone(t *testing.T) {
	each(t, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		g.net.Cut(2, 3)
		g.net.Cut(3, 2)
		for _, id := range g.members {
			g.start(id)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := g.mutex(1, "x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waits for [2 3] to meet everybody")
		require.Equal(t, []dmutex.NodeID{2, 3}, g.nodes[1].Status().Unready)
		require.Empty(t, g.nodes[1].Status().Unmet)

		for _, other := range []dmutex.NodeID{2, 3} { // crash, without healing the cut
			g.net.Cut(1, other)
		}
		g.close(1)
		g.net.Heal()
		g.net.Cut(2, 3)
		g.net.Cut(3, 2)
		g.start(1)
		time.Sleep(time.Minute)
		g.net.Heal()
		h := g.acquire(1, "x")
		require.EqualValues(t, 1, h.Fence())
		require.NoError(t, h.Release())
	})
}

// A Close that meets a request on its way ends when the last acknowledgement is
// out.
func TestCloseAmidRequest(t *testing.T) {
	delay := memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
	bubble(t, ricart.New, delay, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.acquire(1, "x").Release())
		time.Sleep(time.Second)
		asked := g.acquireLater(t.Context(), 1, "y")
		before := time.Now()
		require.NoError(t, g.nodes[2].Close(t.Context()))
		require.Less(t, time.Since(before), time.Second)
		if o := <-asked; o.err != nil { // it depends on who was first
			require.ErrorIs(t, o.err, node.ErrLeft)
		} else {
			require.NoError(t, o.held.Release())
		}
	})
}

// LESSONS L19: a Close does not wait for locks that it has nothing to do with
// any more.
func TestCloseAfterCancel(t *testing.T) {
	each(t, func(t *testing.T, g *group) {
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
		require.NoError(t, g.nodes[1].Close(t.Context()))
		require.Less(t, time.Since(before), time.Second)
		require.NoError(t, held.Release())
	})
}

// Whoever leaves in a hurry, while it waits, leaves nobody waiting for it: the
// others go on or are told.
func TestLeftInAHurry(t *testing.T) {
	each(t, func(t *testing.T, g *group) {
		g.open(4)
		held := g.acquire(1, "x")
		waits := []<-chan outcome{g.acquireLater(t.Context(), 2, "x"), g.acquireLater(t.Context(), 3, "x")}
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.nodes[2].Close(ctx), context.DeadlineExceeded)
		require.ErrorIs(t, (<-waits[0]).err, node.ErrClosed)
		require.NoError(t, held.Err())
		require.NoError(t, held.Release())
		end := func(o outcome) {
			if o.err == nil {
				require.NoError(t, o.held.Release())
				return
			}
			require.ErrorIs(t, o.err, node.ErrLeft)
			var peer *node.PeerError
			require.ErrorAs(t, o.err, &peer)
			require.EqualValues(t, 2, peer.Peer)
		}
		end(<-waits[1])
		end(<-g.acquireLater(t.Context(), 4, "x"))
	})
}

// One that has left does not keep what is said to the others from them.
func TestLeftWhileOthersWait(t *testing.T) {
	for _, a := range []dmutex.Algorithm{lamport.New, lamport.OmitReplies} {
		bubble(t, a, memlink.Config{}, func(t *testing.T, g *group) {
			g.open(4)
			held := g.acquire(1, "x")
			waiting := g.acquireLater(t.Context(), 3, "x")
			time.Sleep(time.Second)
			require.NoError(t, g.nodes[2].Close(t.Context()))
			time.Sleep(time.Second)
			require.NoError(t, held.Release())
			if o := <-waiting; o.err != nil {
				require.ErrorIs(t, o.err, node.ErrLeft)
			}
		})
	}
}

// LESSONS L53: a client of the coordinator that closes while it waits costs
// nobody the lock, also when another has left before.
func TestClientsLeaveOneByOne(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(5)
		held := g.acquire(2, "x")
		require.NoError(t, g.nodes[4].Close(t.Context()))
		waiting := g.acquireLater(t.Context(), 3, "x")
		last := g.acquireLater(t.Context(), 5, "x")
		closed := make(chan error)
		go func() { closed <- g.nodes[3].Close(t.Context()) }()
		synctest.Wait()
		require.ErrorIs(t, (<-waiting).err, node.ErrClosed)
		require.NoError(t, held.Release())
		o := <-last
		require.NoError(t, o.err)
		require.NoError(t, o.held.Release())
		require.NoError(t, <-closed)
	})
}

// A lock in use is not forgotten, however many others rest.
func TestHeldIsRemembered(t *testing.T) {
	each(t, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.acquire(1, "x").Release()) // it rests
		held := g.acquire(1, "x")
		for i := range 2000 {
			require.NoError(t, g.acquire(1, fmt.Sprint("other ", i)).Release())
		}
		_, err := g.mutex(2, "x").TryAcquire(t.Context())
		require.ErrorIs(t, err, node.ErrBusy)
		next := g.acquireLater(t.Context(), 2, "x")
		require.NoError(t, held.Release())
		o := <-next
		require.NoError(t, o.err)
		require.Greater(t, o.held.Fence(), held.Fence())
		require.NoError(t, o.held.Release())
	})
}

// What a node forgets of a lock it remembers in sum: its next request is later
// than all that it answered before.
func TestTimeIsRemembered(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
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
		o := <-first
		require.NoError(t, o.err)
		select {
		case <-second:
			require.Fail(t, "two holders")
		case <-time.After(time.Minute):
		}
		require.NoError(t, o.held.Release())
		o = <-second
		require.NoError(t, o.err)
		require.NoError(t, o.held.Release())
	})
}

// LESSONS L3, L20, L23: a grant that meets the end of its wait is given back.
func TestGrantMeetsCancel(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // the waiter runs when both have happened
	each(t, func(t *testing.T, g *group) {
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

// Early is what a peer says that is ready before we are: it waits, within
// bounds.
func TestEarly(t *testing.T) {
	early := func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		g.start(2)
		g.start(3)
		time.Sleep(time.Second)
		g.net.Cut(3, 2) // they have met, but 2 will not hear that 3 has met 1
		g.start(1)
		require.NoError(t, g.nodes[1].Ready(t.Context()))
		time.Sleep(time.Second)
		require.Equal(t, []dmutex.NodeID{3}, g.nodes[2].Status().Unready)
	}
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		early(t, g)
		waiting := g.acquireLater(t.Context(), 1, "x")
		time.Sleep(time.Minute)
		select {
		case <-waiting:
			require.Fail(t, "2 has acted before everybody had met everybody")
		default:
		}
		g.net.Heal()
		o := <-waiting
		require.NoError(t, o.err)
		require.NoError(t, o.held.Release())
	})
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		early(t, g)
		for i := range 5000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
			_, err := g.mutex(1, fmt.Sprint(string(make([]byte, 240)), i)).Acquire(ctx)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
		}
		require.ErrorIs(t, g.nodes[2].Status().Err, node.ErrOverflow)
	})
}

// A request that was withdrawn and can have no answer any more is not taken up
// again.
func TestLeftWithdrawn(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.acquire(2, "y").Release())
		time.Sleep(time.Second)
		g.net.Cut(2, 1)
		ctx, cancel := context.WithCancel(t.Context())
		asked := g.acquireLater(ctx, 2, "x")
		cancel()
		require.ErrorIs(t, (<-asked).err, context.Canceled)
		closed := make(chan error)
		go func() { closed <- g.nodes[1].Close(t.Context()) }()
		synctest.Wait()
		g.net.Heal()
		require.NoError(t, <-closed)
		_, err := g.mutex(2, "x").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrLeft)
	})
}

// Nodes whose floors of the fences differ do not meet: the lower one would
// grant below the higher.
func TestFloorsDiffer(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		n, err := node.Open(t.Context(), node.Config{
			Self: 2, Members: g.members, Algorithm: central.New, Link: g.net.Link(2), Fence: 41,
		})
		require.NoError(t, err)
		g.nodes[2] = n
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, n.Ready(ctx), context.DeadlineExceeded)
	})
}

// Members start, close and crash in any order before all are there: then the group
// works, or somebody says that it is broken.
func TestStartInAnyOrder(t *testing.T) {
	works := 0
	for seed := range uint64(100) {
		net := memlink.Config{MinDelay: time.Millisecond, MaxDelay: 3 * time.Millisecond, Loss: float64(seed%2) / 5, Seed: seed}
		bubble(t, ricart.New, net, func(t *testing.T, g *group) {
			luck := rand.New(rand.NewPCG(seed, 0))
			g.members = []dmutex.NodeID{1, 2, 3}
			for range luck.IntN(8) {
				id := dmutex.NodeID(1 + luck.IntN(20)/9) // 3 is seldom there
				switch {
				case g.nodes[id] == nil:
					g.start(id)
				case luck.IntN(2) == 0:
					g.close(id)
				default:
					g.crash(id)
				}
				time.Sleep(upTo(luck, 60*time.Millisecond))
			}
			for _, id := range g.members {
				if g.nodes[id] == nil {
					g.start(id)
				}
			}
			time.Sleep(time.Minute)
			for _, n := range g.nodes {
				if err := n.Status().Err; err != nil {
					require.True(t, errors.Is(err, node.ErrRestarted) || errors.Is(err, node.ErrLeft), "seed %d: %v", seed, err)
					return
				}
			}
			works++
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for _, id := range g.members {
				h, err := g.mutex(id, "x").Acquire(ctx)
				require.NoError(t, err, "seed %d, node %d", seed, id)
				require.NoError(t, h.Release())
			}
		})
	}
	require.Greater(t, works, 50)
}
