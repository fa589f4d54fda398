package node_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// eachDetecting is some with groups that look for deadlocks every second.
func eachDetecting(t *testing.T, modes mode, test func(t *testing.T, g *group)) {
	each(t, modes, func(t *testing.T, g *group) {
		g.deadlock = time.Second
		test(t, g)
	})
}

// txns begins a transaction at each of the nodes; the i-th holds lock i.
func (g *group) txns(nodes ...dmutex.NodeID) (txns []*node.Txn) {
	for i, id := range nodes {
		txn := g.node(id).Txn()
		_, err := txn.Acquire(g.t.Context(), fmt.Sprint(i))
		require.NoError(g.t, err)
		txns = append(txns, txn)
	}
	return txns
}

// waits lets a transaction wait for a lock in the background, for two hours at
// most.
func (g *group) waits(ctx context.Context, txn *node.Txn, name string) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Hour)
		defer cancel()
		h, err := txn.Acquire(ctx, name)
		c <- outcome{h, err}
	}()
	synctest.Wait()
	time.Sleep(100 * time.Millisecond) // so that each transaction is younger than the one before
	return c
}

// cycle lets a transaction at each of the nodes hold a lock and wait for that of the next one.
func (g *group) cycle(nodes ...dmutex.NodeID) (txns []*node.Txn, waits []<-chan outcome) {
	txns = g.txns(nodes...)
	for i, txn := range txns {
		waits = append(waits, g.waits(g.t.Context(), txn, fmt.Sprint((i+1)%len(txns))))
	}
	return txns, waits
}

// breaks requires that the youngest of a cycle is its victim, and that the others get their locks, one after another.
func (g *group) breaks(txns []*node.Txn, waits []<-chan outcome) {
	g.t.Helper()
	last := len(txns) - 1
	require.ErrorIs(g.t, (<-waits[last]).err, node.ErrDeadlock)
	require.NoError(g.t, txns[last].Release())
	g.unwinds(txns[:last], waits)
}

// unwinds requires that each gets its lock when the one after it has released.
func (g *group) unwinds(txns []*node.Txn, waits []<-chan outcome) {
	g.t.Helper()
	for i, txn := range slices.Backward(txns) {
		require.NoError(g.t, (<-waits[i]).err)
		require.NoError(g.t, txn.Release())
	}
}

// A cycle of 2 to 10 nodes ends with one victim: the youngest. Its error names the cycle. When the
// victim has released, the others go on one after another.
func TestCycles(t *testing.T) {
	eachDetecting(t, leased, func(t *testing.T, g *group) {
		g.open(10)
		for n := 2; n <= 10; n++ {
			txns, waits := g.cycle(g.members[:n]...)
			o := <-waits[n-1]
			require.ErrorIs(t, o.err, node.ErrDeadlock, "%d nodes", n)
			var cycle *node.Error
			require.ErrorAs(t, o.err, &cycle)
			require.Len(t, cycle.Cycle, n)
			for i, e := range cycle.Cycle {
				at := (n - 1 + i) % n
				require.Equal(t, node.Edge{Waiter: g.members[at], Lock: fmt.Sprint((at + 1) % n), Holder: g.members[(at+1)%n]}, e)
			}
			time.Sleep(time.Minute)
			for _, w := range waits[:n-1] {
				require.Empty(t, w, "another wait has ended")
			}
			require.NoError(t, txns[n-1].Held(fmt.Sprint(n-1)).Err(), "the victim keeps what it holds")
			require.NoError(t, txns[n-1].Release())
			g.unwinds(txns[:n-1], waits)
		}
		deadlocks := uint64(0)
		for _, n := range g.all {
			deadlocks += n.Status().Deadlocks
		}
		require.EqualValues(t, 9, deadlocks)
	})
}

func TestDeadlockErrorTells(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.deadlock = time.Second
		g.open(2)
		txns := g.txns(1, 2)
		waits := g.waits(t.Context(), txns[0], "1")
		_, err := txns[1].Acquire(t.Context(), "0")
		require.EqualError(t, err, `node: lock "0": deadlock: node 2 waits for "0", held by node 1, which waits for "1", held by node 2`)
		require.NoError(t, txns[1].Release())
		require.NoError(t, (<-waits).err)
		require.NoError(t, txns[0].Release())
	})
}

// Two cycles at once have a victim each, even if they share nodes.
func TestTwoCycles(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(3)
		txns := g.txns(1, 2, 3, 2, 1) // 0, 1 and 2 in one, 3 and 4 in the other
		next := []int{1, 2, 0, 4, 3}
		var waits []<-chan outcome
		for i, txn := range txns {
			waits = append(waits, g.waits(t.Context(), txn, fmt.Sprint(next[i])))
		}
		for _, victim := range []int{2, 4} {
			require.ErrorIs(t, (<-waits[victim]).err, node.ErrDeadlock)
			require.NoError(t, txns[victim].Release())
		}
		for _, i := range []int{1, 0, 3} {
			require.NoError(t, (<-waits[i]).err)
			require.NoError(t, txns[i].Release())
		}
	})
}

// A cycle of two or three transactions within one node needs no probe.
func TestCycleAtHome(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(2)
		for _, at := range [][]dmutex.NodeID{{1, 1}, {2, 2, 2}} {
			g.breaks(g.cycle(at...))
		}
		require.Zero(t, g.node(1).Status().Probes+g.node(2).Status().Probes)
	})
}

// Waiters behind others in the queue, and waiters that hold nothing, do not hide a cycle. They get
// their turn when it is broken.
func TestCycleBehindAQueue(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(4)
		txns := g.txns(1, 2)
		lone := make(chan error)
		for id, name := range map[dmutex.NodeID]string{3: "0", 4: "1", 2: "0"} {
			waiting := g.acquireLater(t.Context(), id, name)
			go func() {
				o := <-waiting
				if o.err == nil {
					o.err = o.held.Release()
				}
				lone <- o.err
			}()
		}
		time.Sleep(time.Second)
		first := g.waits(t.Context(), txns[0], "1")
		second := g.waits(t.Context(), txns[1], "0")
		g.breaks(txns, []<-chan outcome{first, second})
		for range 3 {
			require.NoError(t, <-lone)
		}
	})
}

// A chain is no cycle, and a lock held outside of any transaction closes none.
func TestNoCycle(t *testing.T) {
	eachDetecting(t, leased, func(t *testing.T, g *group) {
		g.open(3)
		txns := g.txns(1, 2, 3)
		lone := g.acquire(1, "lone")
		waits := []<-chan outcome{
			g.waits(t.Context(), txns[0], "1"),
			g.waits(t.Context(), txns[1], "2"),
			g.waits(t.Context(), txns[2], "lone"),
		}
		time.Sleep(10 * time.Minute)
		require.NotZero(t, g.node(1).Status().Probes+g.node(2).Status().Probes)
		require.NoError(t, lone.Release())
		g.unwinds(txns, waits)
		for _, n := range g.all {
			require.Zero(t, n.Status().Deadlocks)
		}
	})
}

// If a wait or a hold of a cycle ends by itself, no other wait fails.
func TestCycleDissolves(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(2)
		txns := g.txns(1, 2)
		first := g.waits(nodetest.ContextFor(t, 900*time.Millisecond), txns[0], "1")
		second := g.waits(t.Context(), txns[1], "0")
		require.ErrorIs(t, (<-first).err, context.DeadlineExceeded)
		time.Sleep(time.Minute)
		require.Empty(t, second)

		first = g.waits(t.Context(), txns[0], "1")
		require.NoError(t, txns[1].Held("1").Release(), "early, while its transaction waits")
		require.NoError(t, (<-first).err)
		time.Sleep(time.Minute)
		require.NoError(t, txns[0].Release())
		require.NoError(t, (<-second).err)
		require.NoError(t, txns[1].Release())
	})
}

// A node that closes takes its waits and holds out of the cycle. The others go on.
func TestCycleCloses(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(3)
		txns, waits := g.cycle(1, 2, 3)
		closed := make(chan error)
		go func() { closed <- g.node(2).Close(t.Context()) }()
		require.ErrorIs(t, (<-waits[1]).err, node.ErrClosed)
		for _, i := range []int{0, 2} { // 0 waits for what 1 held, and 2 for what 0 holds
			require.NoError(t, (<-waits[i]).err)
			require.NoError(t, txns[i].Release())
		}
		require.NoError(t, <-closed)
		require.ErrorIs(t, txns[1].Release(), node.ErrLost)
	})
}

// Each transaction takes its locks in an order of its own, over a network that loses, repeats and reorders frames. A
// victim releases and tries again. All finish in the end, and no lock stays held.
func TestDeadlockOnABadNetwork(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			bad := memlink.Config{MinDelay: time.Millisecond, MaxDelay: 50 * time.Millisecond, Loss: 0.2, Duplicate: 0.1, Seed: 7}
			bubble(t, both, a.Algorithm, bad, func(t *testing.T, g *group) {
				g.deadlock = time.Second
				g.open(4)
				require.NotZero(t, g.everybodyRetries(7, true))
			})
		})
	}
}

// If all transactions take their locks in one fixed order, none is ever a victim, on a network with
// random delays. 3 seeds, and 200 with DMUTEX_LONG=1.
func TestNeverAVictim(t *testing.T) {
	seeds := uint64(3)
	if os.Getenv("DMUTEX_LONG") != "" {
		seeds = 200
	}
	for _, a := range algorithms.Some() {
		for seed := range seeds {
			t.Run(fmt.Sprint(a.Name, ", seed ", seed), func(t *testing.T) {
				slow := memlink.Config{MaxDelay: 10 * time.Millisecond, Seed: seed}
				bubble(t, leased, a.Algorithm, slow, func(t *testing.T, g *group) {
					g.deadlock = time.Millisecond
					g.open(4)
					require.Zero(t, g.everybodyRetries(seed, false))
				})
			})
		}
	}
}

// everybodyRetries lets two transactions at each node take three of five locks in any order, or
// else two in a fixed order, several times. It returns how often one was a victim.
func (g *group) everybodyRetries(seed uint64, anyOrder bool) (victims int) {
	const rounds = 5
	counts := make(chan int)
	locks := []string{"a", "b", "c", "d", "e"}
	for i := range 2 * len(g.members) {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		n := g.node(g.members[i/2])
		go func() {
			count := 0
			for range rounds {
				txn := n.Txn()
				order := random.Perm(len(locks))[:3]
				for {
					err := take(g.t.Context(), txn, locks, order, anyOrder)
					require.NoError(g.t, txn.Release())
					if err == nil {
						break
					}
					require.ErrorIs(g.t, err, node.ErrDeadlock)
					count++
				}
			}
			counts <- count
		}()
	}
	for range 2 * len(g.members) {
		victims += <-counts
	}
	time.Sleep(time.Second)
	for _, n := range g.all {
		for _, name := range locks {
			require.Equal(g.t, dmutex.Idle, n.Mutex(name).Status().Phase)
		}
	}
	return victims
}

func take(ctx context.Context, txn *node.Txn, locks []string, order []int, anyOrder bool) error {
	if !anyOrder {
		order = []int{min(order[0], order[1]), max(order[0], order[1])}
	}
	for _, k := range order {
		if _, err := txn.Acquire(ctx, locks[k]); err != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// A victim that tries again keeps its age, so it is not always the victim.
func TestVictimGrowsOld(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(2)
		stubborn := g.node(1).Txn()
		for round := range 3 {
			other := g.node(2).Txn()
			for txn, name := range map[*node.Txn]string{stubborn: "a", other: "b"} {
				_, err := txn.Acquire(t.Context(), name)
				require.NoError(t, err)
			}
			theirs := g.waits(t.Context(), other, "a")
			ours := g.waits(t.Context(), stubborn, "b")
			first, second := ours, theirs
			gives, gets := stubborn, other
			if round > 0 {
				first, second, gives, gets = theirs, ours, other, stubborn
			}
			require.ErrorIs(t, (<-first).err, node.ErrDeadlock)
			require.NoError(t, gives.Release())
			require.NoError(t, (<-second).err)
			require.NoError(t, gets.Release())
		}
	})
}

// Age does not depend on when a node was opened.
func TestAgeIsOfTheTransaction(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		time.Sleep(time.Hour)
		g.start(2)
		require.NoError(t, g.node(2).Ready(t.Context()))
		g.breaks(g.cycle(1, 2))
	})
}

// A cycle is found even if the view changes meanwhile: probes to a member that left are lost, and
// the next search finds the cycle.
func TestCycleMeetsAViewChange(t *testing.T) {
	eachDetecting(t, both, func(t *testing.T, g *group) {
		g.open(4)
		txns := g.txns(4, 1)
		g.net.Cut(3, 1) // 3 is asked whether it knows who holds a lock, and is not heard
		g.net.Cut(3, 4)
		first := g.waits(t.Context(), txns[0], "1")
		second := g.waits(t.Context(), txns[1], "0")
		closed := make(chan error)
		go func() { closed <- g.node(3).Close(t.Context()) }()
		time.Sleep(950 * time.Millisecond)
		g.net.Heal()
		require.NoError(t, <-closed)
		g.breaks(txns, []<-chan outcome{first, second})
	})
}

// without Config.Deadlock, no node looks for deadlocks.
func TestDetectionOff(t *testing.T) {
	each(t, leased, func(t *testing.T, g *group) {
		g.open(2)
		txns := g.txns(1, 2)
		ctx := nodetest.ContextFor(t, time.Hour)
		waits := []<-chan outcome{g.waits(ctx, txns[0], "1"), g.waits(ctx, txns[1], "0")}
		for _, w := range waits {
			require.ErrorIs(t, (<-w).err, context.DeadlineExceeded)
		}
		for i, n := range g.all {
			require.Zero(t, n.Status().Probes)
			require.NoError(t, txns[i].Release())
		}
	})
}

// While a peer cannot be reached, probes to it do not pile up.
func TestProbesDoNotPileUp(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.deadlock = 100 * time.Millisecond
		g.open(2)
		held := g.acquire(2, "x")
		var txns []*node.Txn
		var waits []<-chan outcome
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 50 {
			txn := g.node(1).Txn()
			_, err := txn.Acquire(t.Context(), fmt.Sprint(i))
			require.NoError(t, err)
			txns, waits = append(txns, txn), append(waits, g.waits(ctx, txn, "x"))
		}
		g.net.Cut(1, 2)
		time.Sleep(time.Minute)
		require.Less(t, g.node(1).Status().Peers[0].Backlog, 70<<10)
		g.net.Heal()
		require.NoError(t, g.acquire(1, "another").Release())
		cancel()
		for i, w := range waits {
			require.ErrorIs(t, (<-w).err, context.Canceled)
			require.NoError(t, txns[i].Release())
		}
		require.NoError(t, held.Release())
	})
}

// A cycle is not found if its probe does not fit into a frame of the link. That does no harm.
func TestProbeTooLong(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.wrapLink = func(l transport.DynamicLink) transport.DynamicLink { return framed{l, 1024} }
		g.deadlock = time.Second
		g.open(2)
		for _, length := range []int{4, 6} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			name := func(i int) string { return strings.Repeat("long", 50) + fmt.Sprint(i%length) }
			var waits []<-chan outcome
			var txns []*node.Txn
			for i := range length {
				txn := g.node(dmutex.NodeID(i%2 + 1)).Txn()
				_, err := txn.Acquire(ctx, name(i))
				require.NoError(t, err)
				txns = append(txns, txn)
			}
			for i, txn := range txns {
				waits = append(waits, g.waits(ctx, txn, name(i+1)))
			}
			o := <-waits[length-1]
			if length == 4 {
				require.ErrorIs(t, o.err, node.ErrDeadlock)
			} else {
				require.ErrorIs(t, o.err, context.DeadlineExceeded)
			}
			cancel()
			for i, txn := range txns {
				if i < length-1 {
					<-waits[i]
				}
				require.NoError(t, txn.Release())
			}
		}
		require.NoError(t, g.node(1).Status().Err)
	})
}

// An Acquire allocates as much with detection as without.
func TestDetectionAllocatesNothing(t *testing.T) {
	allocations := func(deadlock time.Duration) (n float64) {
		bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
			g.deadlock = deadlock
			g.open(1)
			m := g.mutex(1, "x")
			n = testing.AllocsPerRun(100, func() {
				h, err := m.Acquire(t.Context())
				if err := errors.Join(err, h.Release()); err != nil {
					t.Error(err)
				}
			})
		})
		return n
	}
	require.Equal(t, allocations(0), allocations(time.Second))
}
