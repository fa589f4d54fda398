package node_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
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

// A member that stays gets a lock within a second while another joins, locks and leaves as fast as
// it can.
func TestOthersComeAndGo(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
			bubble(t, strict, a.Algorithm, delays, func(t *testing.T, g *group) {
				nodetest.Today()
				g.open(3)
				g.close(2)
				g.node(1).stays(1, func() *member { return g.start(2) })
			})
		})
	}
}

// With a store, two members come and go. The store is no faster than the network. Otherwise a
// newcomer that is the home of the lock could take the lock and leave, again and again, before a
// request of another member reaches it.
func TestOthersComeAndGoWithAStore(t *testing.T) {
	eachLease(t, func(t *testing.T, g *group) {
		g.delayed(2 * time.Millisecond)
		open := func() *member { return g.join() }
		one := open()
		require.NoError(t, one.Ready(t.Context()))
		one.stays(2, open)
	})
}

// stays requires that a member that stays gets a lock within a second, while n others join, lock and leave as fast
// as they can.
func (s *member) stays(n int, open func() *member) {
	t := s.group.t
	var others sync.WaitGroup
	long, least := 10*time.Second, 100
	if racetest.On {
		long, least = time.Second, 10
	}
	end := time.Now().Add(long)
	came := make([]int, n)
	for i := range came {
		others.Go(func() {
			for ; time.Now().Before(end); came[i]++ {
				n := open()
				n.forget()
				held, err := n.Mutex("x").Acquire(t.Context())
				if err == nil {
					err = held.Release()
				}
				if err != nil {
					t.Error(err)
				}
				if err := n.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	last, grants := uint64(0), 0
	for time.Now().Before(end) {
		held, err := s.Mutex("x").Acquire(nodetest.ContextFor(t, time.Second))
		if err != nil {
			t.Errorf("after %d grants: %v", grants, err)
			break
		}
		require.Greater(t, held.Fence(), last)
		last = held.Fence()
		grants++
		require.NoError(t, held.Release())
		time.Sleep(time.Millisecond)
	}
	others.Wait()
	t.Logf("%d grants, while others came %v times, in %d views", grants, came, s.Status().View.Changes)
	require.Greater(t, slices.Min(came), least)
}

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

// All members leave within milliseconds of each other, over a slow network, which may lose one frame in twenty. None
// waits for a member that is gone: each Close succeeds, long before its deadline. 40 seeds, and 1,000 with CI=1.
func TestLeaveTogether(t *testing.T) {
	seeds := uint64(40)
	if !racetest.On && os.Getenv("CI") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		cfg, modes := memlink.Config{MinDelay: time.Millisecond / 2, MaxDelay: 2 * time.Millisecond, Seed: seed}, both
		if seed%2 == 0 {
			cfg.Loss, modes = 0.05, strict
		}
		bubble(t, modes, algorithms.All[seed%uint64(len(algorithms.All))].Algorithm, cfg, func(t *testing.T, g *group) {
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
