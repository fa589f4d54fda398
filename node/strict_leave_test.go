package node_test

import (
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// One of four members leaves, at each quarter of a millisecond while one holds and releases, one
// waits, and one cancels its wait. Each of them may be the one that leaves. A frame takes a
// millisecond. Close takes a few round trips, the others get the lock, and no other Acquire fails
// than the canceled one and those of the leaver.
func TestLeftAtAnyMoment(t *testing.T) {
	if racetest.On || os.Getenv("CI") == "" {
		t.Skip("takes seconds, and thousands of bubbles; set CI=1")
	}
	const oneWay, moments, roundTrips = time.Millisecond, 32, 6
	slow := memlink.Config{MinDelay: oneWay, MaxDelay: oneWay}
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			for first := range dmutex.NodeID(4) {
				part := func(i dmutex.NodeID) dmutex.NodeID { return (first+i)%4 + 1 }
				holder, waiter, quitter := part(0), part(1), part(2)
				for moment := range moments {
					after, leaver := time.Duration(moment)*oneWay/4, part(dmutex.NodeID(moment%4))
					bubble(t, strict, a.Algorithm, slow, func(t *testing.T, g *group) {
						g.open(4)
						time.Sleep(time.Minute) // after a calm time the next view acts at once
						held := g.acquire(holder, "x")
						waiting := g.acquireLater(t.Context(), waiter, "x")
						time.Sleep(20 * oneWay)
						quitting := g.acquireLater(nodetest.ContextFor(t, 2*oneWay), quitter, "x")
						var wg sync.WaitGroup
						wg.Go(func() {
							time.Sleep(4 * oneWay)
							if err := held.Release(); leaver != holder {
								require.NoError(t, err)
							}
						})
						wg.Go(func() {
							time.Sleep(after)
							begun := time.Now()
							require.NoError(t, g.node(leaver).Close(t.Context()))
							require.LessOrEqual(t, time.Since(begun), roundTrips*2*oneWay, "%v leaves after %v, %v holds", leaver, after, holder)
						})
						release := func(id dmutex.NodeID, o outcome) {
							if o.err == nil {
								time.Sleep(oneWay)
								o.err = o.held.Release()
							}
							if id != leaver {
								require.NoError(t, o.err, "node %v", id)
							}
						}
						release(waiter, <-waiting)
						require.Error(t, (<-quitting).err)
						wg.Wait()
						for _, id := range g.members {
							if id != leaver {
								release(id, <-g.acquireLater(t.Context(), id, "x"))
							}
						}
					})
				}
			}
		})
	}
}

// All members leave at nearly the same time, over a network that loses one frame in twenty. Each
// Close succeeds, long before its deadline.
func TestLeaveTogetherOverLoss(t *testing.T) {
	if racetest.On || os.Getenv("CI") == "" {
		t.Skip("takes seconds, and thousands of bubbles; set CI=1")
	}
	for seed := range uint64(1000) {
		cfg := memlink.Config{MinDelay: time.Millisecond / 2, MaxDelay: 2 * time.Millisecond, Loss: 0.05, Seed: seed}
		bubble(t, strict, algorithms.All[seed%uint64(len(algorithms.All))].Algorithm, cfg, func(t *testing.T, g *group) {
			luck := rand.New(rand.NewPCG(seed, 0))
			g.open(4)
			var wg sync.WaitGroup
			for _, n := range g.all {
				id := n.id
				after := nodetest.UpTo(luck, time.Millisecond<<(seed%10))
				wg.Go(func() {
					time.Sleep(after)
					ctx := nodetest.ContextFor(t, time.Minute)
					begun := time.Now()
					require.NoError(t, n.Close(ctx), "node %d, seed %d", id, seed)
					require.Less(t, time.Since(begun), 5*time.Second, "node %d, seed %d", id, seed)
					require.ErrorIs(t, n.Status().Err, node.ErrClosed)
					require.NotErrorIs(t, n.Status().Err, node.ErrStopped, "the node was closed, and has not stopped by itself")
				})
			}
			wg.Wait()
		})
	}
}
