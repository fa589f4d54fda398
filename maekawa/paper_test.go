package maekawa

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// A run is a group of nodes 1 to n whose messages the test carries.
type run struct {
	t        *testing.T
	machines []dmutex.Machine
	wire     []dmutex.Message     // on their way, oldest first
	count    map[dmutex.Stamp]int // messages about each request
	down     dmutex.NodeID        // hears nothing
}

func start(t *testing.T, algorithm dmutex.Algorithm, n int) *run {
	r := &run{t: t, count: make(map[dmutex.Stamp]int)}
	for _, id := range dmutextest.Nodes(n) {
		m, err := algorithm(dmutex.Start{Self: id, Members: dmutextest.Nodes(n)})
		require.NoError(t, err)
		r.machines = append(r.machines, m)
	}
	return r
}

func (r *run) node(id dmutex.NodeID) dmutex.Machine { return r.machines[id-1] }

func (r *run) send(out []dmutex.Message, err error) {
	require.NoError(r.t, err)
	for _, msg := range out {
		r.count[about(msg)]++
		r.wire = append(r.wire, msg)
	}
}

// deliver hands over the oldest message between the two nodes of message k.
func (r *run) deliver(k int) {
	like := r.wire[k]
	k = slices.IndexFunc(r.wire, func(msg dmutex.Message) bool {
		return msg.From == like.From && msg.To == like.To
	})
	msg := r.wire[k]
	r.wire = slices.Delete(r.wire, k, k+1)
	if msg.To != r.down {
		r.send(r.node(msg.To).Handle(msg))
	}
}

// hop hands over all that is on its way: the time of one message passes.
func (r *run) hop() {
	for range len(r.wire) {
		r.deliver(0)
	}
}

// settle lets messages pass until there are none.
func (r *run) settle() {
	for len(r.wire) > 0 {
		r.deliver(0)
	}
}

// holder returns the only node in the critical section.
func (r *run) holder() (holder dmutex.NodeID) {
	for i, m := range r.machines {
		if m.Phase() == dmutex.Held {
			require.Equal(r.t, dmutex.None, holder)
			holder = dmutex.NodeID(i + 1)
		}
	}
	return holder
}

// "An entry costs 3(K-1) messages when no other node is interested."
func TestUncontended(t *testing.T) {
	for n := 1; n <= 50; n++ {
		r := start(t, New, n)
		for _, id := range dmutextest.Nodes(n) {
			r.send(r.node(id).Request())
			r.settle()
			require.Equal(t, dmutex.Held, r.node(id).Phase())
			request := r.node(id).(*machine).Stamp()
			r.send(r.node(id).Release())
			r.settle()
			require.Equal(t, 3*(len(rowAndColumn(dmutextest.Nodes(n), id))-1), r.count[request], "node %d of %d", id, n)
		}
	}
}

// "The delay is two message hops when no other node is interested, two from a
// release to the next entry, and one if the arbiter between is one of the two."
func TestDelays(t *testing.T) {
	for _, c := range []struct {
		name          string
		quorums       rows
		first, second dmutex.NodeID
		hops          int
	}{
		{name: "arbiter 4 between 1 and 2", quorums: rows{{4}, {4}, {4}, {4}}, first: 1, second: 2, hops: 2},
		{name: "the arbiter is the first", quorums: pairs, first: 2, second: 1, hops: 1},
		{name: "the arbiter is the second", quorums: pairs, first: 1, second: 2, hops: 1},
		{name: "arbiters 2 and 3 between 1 and 4", quorums: grid, first: 1, second: 4, hops: 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := start(t, With(c.quorums.of), len(c.quorums))
			r.send(r.node(c.first).Request())
			r.hop()
			require.Equal(t, dmutex.None, r.holder())
			r.hop()
			require.Equal(t, c.first, r.holder())

			r.send(r.node(c.second).Request())
			r.settle()
			r.send(r.node(c.first).Release())
			for hop := range c.hops {
				require.Equal(t, dmutex.None, r.holder(), "after %d hops", hop)
				r.hop()
			}
			require.Equal(t, c.second, r.holder())
		})
	}
}

// "A node that stops as an arbiter stops those whose quorums it is in. The
// others go on until one of those asks." The middle of a grid of nine is no
// arbiter of the corners.
func TestCrash(t *testing.T) {
	const middle = 5
	enters := func(id dmutex.NodeID, before ...dmutex.NodeID) bool {
		r := start(t, New, 9)
		r.down = middle
		for _, asks := range before {
			r.send(r.node(asks).Request())
			r.settle()
			require.Equal(t, dmutex.Waiting, r.node(asks).Phase())
		}
		r.send(r.node(id).Request())
		r.settle()
		return r.node(id).Phase() == dmutex.Held
	}
	edges, corners := []dmutex.NodeID{2, 4, 6, 8}, []dmutex.NodeID{1, 3, 7, 9}
	for _, corner := range corners {
		require.True(t, enters(corner), "node %d", corner)
		for _, edge := range edges {
			require.False(t, enters(corner, edge), "node %d after %d", corner, edge)
		}
	}
	for _, edge := range edges {
		require.False(t, enters(edge), "node %d", edge)
	}
}

// "So does a node that stops with a request of its own, pending or granted."
func TestCrashOfAsker(t *testing.T) {
	for _, id := range dmutextest.Nodes(9)[1:] {
		for _, granted := range []bool{true, false} {
			r := start(t, New, 9)
			if !granted {
				r.send(r.node(9).Request())
				r.settle()
			}
			r.send(r.node(1).Request())
			r.settle()
			require.Equal(t, granted, r.node(1).Phase() == dmutex.Held)
			r.down = 1
			if !granted {
				r.send(r.node(9).Release())
			}
			r.send(r.node(id).Request())
			r.settle()
			require.Equal(t, dmutex.Waiting, r.node(id).Phase(), "node %d", id)
		}
	}
}

// A load is a group in which the first nodes ask again and again, and every
// message and every stay in the critical section takes a random time.
type load struct {
	*run
	random *rand.Rand
	askers int
}

// turn does one thing that may happen next, and returns the node that did it.
func (l *load) turn() dmutex.NodeID {
	k := l.random.IntN(len(l.wire) + l.askers)
	if k < len(l.wire) {
		id := l.wire[k].To
		l.deliver(k)
		return id
	}
	id := dmutex.NodeID(k - len(l.wire) + 1)
	switch l.node(id).Phase() {
	case dmutex.Idle:
		l.send(l.node(id).Request())
	case dmutex.Held:
		l.send(l.node(id).Release())
	}
	return id
}

// "Once a request has reached its arbiters, every other node enters at most
// twice before it."
func TestFairness(t *testing.T) {
	runs := 20
	if long {
		runs = 2000
	}
	most := 0
	for seed := range uint64(runs) {
		l := load{start(t, New, 9), rand.New(rand.NewPCG(seed, 0)), 9}
		// By waiting node: how often each other node has entered since the
		// REQUEST reached all arbiters.
		entries := make(map[dmutex.NodeID]map[dmutex.NodeID]int)
		for range 5000 {
			was := l.holder()
			id := l.turn()
			if l.holder() == id && was != id {
				delete(entries, id)
				for waits, count := range entries {
					count[id]++
					most = max(most, count[id])
					require.LessOrEqual(t, count[id], 2, "seed %d: %d before %d", seed, id, waits)
				}
			}
			for _, id := range dmutextest.Nodes(9) {
				underway := slices.ContainsFunc(l.wire, func(msg dmutex.Message) bool {
					return msg.Kind == dmutex.Request && msg.From == id
				})
				if l.node(id).Phase() == dmutex.Waiting && !underway && entries[id] == nil {
					entries[id] = make(map[dmutex.NodeID]int)
				}
			}
		}
	}
	require.Equal(t, 2, most, "the bound is reached")
}

// testdata/messages.txt has the number of messages of an entry when many nodes want to
// enter: at least 3(K-1), as for a node alone, and on average at most 6(K-1), which is
// proved. A single entry may cost more.
func TestMessages(t *testing.T) {
	if machinetest.Thorough(t); testing.Short() {
		t.Skip("takes seconds")
	}
	plane := func(n int, set ...int) func(dmutex.NodeID) []dmutex.NodeID {
		return func(site dmutex.NodeID) (quorum []dmutex.NodeID) {
			for _, d := range set {
				quorum = append(quorum, dmutex.NodeID((int(site)-1+d)%n+1))
			}
			return quorum
		}
	}
	const entries, seed = 1000, 1
	var b strings.Builder
	fmt.Fprintf(&b, "# Messages of an entry for each of the K-1 arbiters asked; %d entries, seed %d.\n", entries, seed)
	fmt.Fprintf(&b, "%-14s %3s %7s %6s %6s %6s %6s\n", "group", "K", "askers", "least", "mean", "99%", "most")
	for _, c := range []struct {
		name      string
		n, k      int
		algorithm dmutex.Algorithm
	}{
		{"grid of 9", 9, 5, New},
		{"grid of 25", 25, 9, New},
		{"grid of 49", 49, 13, New},
		{"plane of 7", 7, 3, With(plane(7, 0, 1, 3))},
		{"plane of 13", 13, 4, With(plane(13, 0, 1, 3, 9))},
		{"plane of 31", 31, 6, With(plane(31, 0, 1, 3, 8, 12, 18))},
		{"plane of 57", 57, 8, With(plane(57, 0, 1, 3, 13, 32, 36, 43, 52))},
	} {
		for _, askers := range []int{1, 2, (c.n + 1) / 2, c.n} {
			l := load{start(t, c.algorithm, c.n), rand.New(rand.NewPCG(seed, 0)), askers}
			for turns := 0; len(l.count) < entries; turns++ {
				require.Less(t, turns, 1000*entries, "nobody enters any more")
				l.turn()
			}
			for l.settle(); l.holder() != dmutex.None; l.settle() {
				l.send(l.node(l.holder()).Release())
			}
			counts := slices.Sorted(maps.Values(l.count))
			sum := 0
			for _, count := range counts {
				sum += count
			}
			each := func(messages int) float64 { return float64(messages) / float64(c.k-1) }
			mean := each(sum) / float64(len(counts))
			if askers == 1 {
				require.Equal(t, 3*(c.k-1), counts[len(counts)-1])
			}
			require.GreaterOrEqual(t, counts[0], 3*(c.k-1))
			require.LessOrEqual(t, mean, 6.0)
			fmt.Fprintf(&b, "%-14s %3d %7d %6.2f %6.2f %6.2f %6.2f\n", c.name, c.k, askers,
				each(counts[0]), mean, each(counts[len(counts)*99/100]), each(counts[len(counts)-1]))
		}
	}
	goldentest.Compare(t, "testdata/messages.txt", b.String())
}

// Rows and columns meet, for every size of group, however short the last row.
func TestRowAndColumn(t *testing.T) {
	for n := 1; n <= 100; n++ {
		members := dmutextest.Nodes(n)
		quorums := make([][]dmutex.NodeID, n)
		root := 1
		for root*root < n {
			root++
		}
		for i, site := range members {
			quorums[i] = rowAndColumn(members, site)
			require.Contains(t, quorums[i], site)
			require.LessOrEqual(t, len(quorums[i]), 2*root-1)
			for _, other := range quorums[:i] {
				require.True(t, slices.ContainsFunc(other, func(k dmutex.NodeID) bool {
					return slices.Contains(quorums[i], k)
				}), "%v and %v of %d", other, quorums[i], n)
			}
		}
	}
	require.Equal(t, []dmutex.NodeID{10, 40, 50, 60, 70},
		rowAndColumn([]dmutex.NodeID{10, 20, 30, 40, 50, 60, 70}, 40))
}

// An arbiter excludes the nodes that ask it, except the one that has its vote. A holder
// excludes all.
func TestExcludes(t *testing.T) {
	of := With(pairs.of) // {1, 2}, {2, 3} and {1, 3}
	machinetest.Excludes(t, of, dmutex.Start{}, [][]dmutex.NodeID{{3}, {1}, {2}})
	machinetest.Excludes(t, of, dmutex.Start{Holder: 1}, [][]dmutex.NodeID{{2, 3}, nil, {2}})
	machinetest.Excludes(t, New, dmutex.Start{Holder: 4}, [][]dmutex.NodeID{{2, 3}, {1}, {1}, {1, 2, 3}})
}
