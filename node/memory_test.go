package node_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// heap returns how many bytes are in use when all garbage is gone.
func heap() float64 {
	for range 4 { // a sync.Pool and a finalizer keep memory for more than one collection
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// memoryGroup opens nodes 1 to n in memory.
func memoryGroup(tb testing.TB, a dmutex.Algorithm, n int) []*node.Node {
	net, err := memlink.New(memlink.Config{})
	require.NoError(tb, err)
	return groupOn(tb, net, a, n)
}

func groupOn(tb testing.TB, net *memlink.Network, a dmutex.Algorithm, n int) []*node.Node {
	var (
		members []dmutex.NodeID
		nodes   []*node.Node
	)
	for id := range dmutex.NodeID(n) {
		members = append(members, id+1)
	}
	for _, id := range members {
		n, err := node.OpenStrict(tb.Context(), id, members, net.Link(id), node.Config{Algorithm: a})
		require.NoError(tb, err)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(tb, n.Ready(tb.Context()))
	}
	return nodes
}

// closeAll closes the nodes at once: a Close may wait for the others.
func closeAll(tb testing.TB, nodes []*node.Node) {
	for _, n := range nodes {
		go n.Close(context.Background())
	}
	for _, n := range nodes {
		require.NoError(tb, n.Close(context.Background()))
	}
}

// names returns n names. Each takes 16 bytes of memory.
func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("lock/%011d", i)
	}
	return list
}

// heldCost lets one node of a group hold many locks. It returns how many bytes a lock takes at that
// node, handle included, and at each of the others, beyond its name. It measures by how much the
// heap shrinks when a node is gone.
func heldCost(tb testing.TB, a dmutex.Algorithm, n, holder, locks int) (here float64, elsewhere []float64) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(tb, err)
	nodes, list := groupOn(tb, net, a, n), names(locks)
	handles := make([]lock.Held, locks)
	for i, name := range list {
		h, err := nodes[holder].Mutex(name).Acquire(tb.Context())
		require.NoError(tb, err)
		handles[i] = h
	}
	owes := func(n *node.Node) bool {
		return slices.ContainsFunc(n.Status().Peers, func(p node.PeerStatus) bool { return p.Unacked > 0 })
	}
	for slices.ContainsFunc(nodes, owes) { // frames in flight take memory, too
		runtime.Gosched()
	}
	var alone [][]dmutex.NodeID // so that nobody hears of a Close: where a member has gone, the others keep less of a lock
	for _, n := range nodes {
		alone = append(alone, []dmutex.NodeID{n.Self()})
	}
	net.Partition(alone...)
	hurry, cancel := context.WithCancel(tb.Context())
	cancel()
	drop := func(i int) float64 {
		before := heap()
		_ = nodes[i].Close(hurry) // Close waits for nobody
		nodes[i] = nil
		return (before - heap()) / float64(locks)
	}
	for i := range nodes {
		if i != holder {
			elsewhere = append(elsewhere, drop(i)-float64(len(list[0])))
		}
	}
	before := heap()
	_ = nodes[holder].Close(hurry)
	clear(nodes)
	clear(handles)
	here = (before - heap()) / float64(locks)
	runtime.KeepAlive(handles)
	runtime.KeepAlive(list)
	return here, elsewhere
}

// In a group of five, a held lock takes at most 600 bytes at each member. With central, who does not share a lock
// pays nothing for sharing, at the coordinator or at another member.
func TestHeldMemory(t *testing.T) {
	if racetest.On || os.Getenv("CI") == "" {
		t.Skip("the race detector has memory of its own, and it takes seconds; set CI=1")
	}
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) { heldTakes(t, a.Algorithm, 5, 5_000, 600) })
	}
	const many = 25_000 // a map has as little room to spare as with 100,000
	t.Run("the coordinator", func(t *testing.T) { heldTakes(t, central.At(2), 3, many, 350) })
	t.Run("not the coordinator", func(t *testing.T) { heldTakes(t, central.At(1), 3, many, 310) })
}

// heldTakes lets member 2 of n hold locks.
func heldTakes(t *testing.T, a dmutex.Algorithm, n, locks int, limit float64) {
	var here float64
	var elsewhere []float64
	for range 3 { // the least counts: a burst leaves large buffers at some links
		here, elsewhere = heldCost(t, a, n, 1, locks)
		t.Logf("%.0f bytes here, %.0f elsewhere", here, elsewhere)
		if max(here, slices.Max(elsewhere)) <= limit {
			break
		}
	}
	require.LessOrEqual(t, here, limit)
	for _, e := range elsewhere {
		require.LessOrEqual(t, e, limit)
	}
}

// Names that were used once leave nothing behind, if the algorithm has nothing to remember. A
// million names with DMUTEX_LONG=1.
func TestNamesLeaveNothing(t *testing.T) {
	count := 10_000
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		count = 1_000_000
	case racetest.On || testing.Short():
		count = 2_000
	}
	for _, a := range algorithms.Some() {
		if !a.Forgets {
			continue // it remembers where the token is
		}
		t.Run(a.Name, func(t *testing.T) {
			nodes := memoryGroup(t, a.Algorithm, 3)
			use := func(i int) {
				h, err := nodes[i%3].Mutex(fmt.Sprintf("name/%d", i)).Acquire(t.Context())
				require.NoError(t, err)
				require.NoError(t, h.Release())
			}
			for i := range 3_000 { // fills the buffers and the list of idle locks
				use(-i * 3)
			}
			before := heap()
			for i := range count {
				use(i)
			}
			grown := heap() - before
			if !racetest.On {
				require.Less(t, grown, 1e6, "bytes for %d names", count)
			}
			for _, n := range nodes {
				require.Less(t, n.Status().Locks, 1000)
			}
			closeAll(t, nodes)
		})
	}
}

// BenchmarkIdleMemory reports the cost of a free lock that one node has used once, with a name of
// 16 bytes: the memory over all three nodes, and how many of them know the lock.
func BenchmarkIdleMemory(b *testing.B) {
	const locks = 100_000
	for _, a := range algorithms.All {
		for user := range 2 { // the first node is special in some algorithms
			b.Run(fmt.Sprintf("%s/3/by%d", a.Name, user+1), func(b *testing.B) {
				for b.Loop() {
					nodes := memoryGroup(b, a.Algorithm, 3)
					before := heap()
					for i := range locks {
						h, err := nodes[user].Mutex(fmt.Sprintf("lock/%011d", i)).Acquire(b.Context())
						require.NoError(b, err)
						require.NoError(b, h.Release())
					}
					b.ReportMetric((heap()-before)/locks, "B/name")
					known := 0
					for _, n := range nodes {
						known += n.Status().Locks
					}
					b.ReportMetric(float64(known)/locks, "nodes/name")
					closeAll(b, nodes)
				}
			})
		}
	}
}

// BenchmarkHeldMemory reports what a held lock costs in memory, beyond its name:
// at the node that holds it, and at the worst of the others.
func BenchmarkHeldMemory(b *testing.B) {
	for _, a := range algorithms.All {
		for _, n := range []int{3, 5} {
			for holder := range 2 { // the first node is special in some algorithms
				b.Run(fmt.Sprintf("%s/%d/by%d", a.Name, n, holder+1), func(b *testing.B) {
					for b.Loop() {
						here, elsewhere := heldCost(b, a.Algorithm, n, holder, 100_000)
						worst := elsewhere[0]
						for _, e := range elsewhere {
							worst = max(worst, e)
						}
						b.ReportMetric(here, "holder-B/lock")
						b.ReportMetric(worst, "others-B/lock")
					}
				})
			}
		}
	}
}

// The locks that were used last are kept, with the permissions that save messages.
func TestUsedLastIsKept(t *testing.T) {
	bubble(t, both, ricart.Carvalho, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		const names = 2000
		for i := range names {
			require.NoError(t, g.acquire(1, "again and again").Release())
			require.NoError(t, g.acquire(1, fmt.Sprint("once/", i)).Release())
		}
		status := g.node(1).Status()
		require.Less(t, status.Locks, names/2)
		require.EqualValues(t, 1+names, status.Sent[dmutex.Request])
	})
}

// A lock that was forgotten, and is used again, goes on with higher fences. Under the race
// detector there are two rounds, the fewest that show it.
func TestFencesRiseThoughForgotten(t *testing.T) {
	const locks = 1500
	rounds := 3
	if racetest.On {
		rounds = 2
	}
	each(t, leased, func(t *testing.T, g *group) {
		g.open(3)
		last, forgotten := make([]uint64, locks), false
		for round := range rounds {
			for i := range locks {
				h := g.acquire(dmutex.NodeID((i+round)%3+1), fmt.Sprint("name/", i))
				require.Greater(t, h.Fence(), last[i], "name %d in round %d", i, round)
				last[i] = h.Fence()
				require.NoError(t, h.Release())
			}
			forgotten = forgotten || g.node(2).Status().Locks < locks*2/3
		}
		if a, err := g.algorithm(dmutex.Start{Self: 1, Members: g.members}); err == nil {
			_, keeps := a.(dmutex.Keeper)
			require.True(t, forgotten || keeps)
		}
	})
}
