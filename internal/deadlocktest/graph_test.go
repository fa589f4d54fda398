package deadlocktest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
)

// settled returns the machines of nodes that wait as a graph says, bit 4i+j for
// a wait of i for j, all requests being in.
func settled(model Model, n, graph int) *world {
	w := (&Trial{Model: model, Waits: make([]int, n)}).begin()
	for i := range n {
		var on []dmutex.NodeID
		for j := range n {
			if graph>>(4*i+j)&1 == 1 {
				on = append(on, dmutex.NodeID(j+1))
			}
		}
		if on == nil {
			continue
		}
		w.wait(i, on)
		w.drain()
	}
	return w
}

// drain delivers everything and counts it by kind.
func (w *world) drain() (count [withdraw + 1]int) {
	for len(w.wire) > 0 {
		count[w.wire[0].Kind]++
		w.arrive(0)
	}
	return count
}

// All wait-for graphs of 4 nodes that do not change, with each node as the
// initiator, against what is so. A computation sends one PROBE over each wait
// that can be reached from the initiator, no more and no less; one QUERY, and
// at most one REPLY, exactly one if it finds a deadlock. A node finds a deadlock
// that it is in itself: on a cycle, or in the OR model if every way ends
// nowhere.
func TestGraphs(t *testing.T) {
	const n = 4
	for graph := range 1 << (n * n) {
		if graph&(1|1<<5|1<<10|1<<15) != 0 {
			continue // no node waits for itself
		}
		and, or := settled(And, n, graph), settled(Or, n, graph)
		reach, onCycle, dead := and.reach(), and.truth(and.reach()), or.truth(or.reach())
		for i := range n {
			if !and.nodes[i].blocked() {
				continue
			}
			waits := 0
			for k := range n {
				if k == i || reach[i][k] {
					for j := range n {
						if and.nodes[k].waits[j] {
							waits++
						}
					}
				}
			}
			a, o := and.Clone(nil), or.Clone(nil)
			a.detect(i)
			o.detect(i)
			count, counted := a.drain(), o.drain()
			require.Equal(t, waits, count[deadlock.Probe], "graph %x from %d", graph, i+1)
			require.Equal(t, onCycle[i], a.nodes[i].Deadlocked(), "graph %x from %d", graph, i+1)
			require.Equal(t, waits, counted[deadlock.Query], "graph %x from %d", graph, i+1)
			require.LessOrEqual(t, counted[deadlock.Reply], waits, "graph %x from %d", graph, i+1)
			require.Equal(t, dead[i], counted[deadlock.Reply] == waits, "graph %x from %d", graph, i+1)
			require.Equal(t, dead[i], o.nodes[i].Deadlocked(), "graph %x from %d", graph, i+1)
		}
	}
}

// Around a lone cycle of n nodes a computation costs n messages of each kind.
func TestCycle(t *testing.T) {
	for n := 2; n <= 50; n++ {
		for _, or := range []bool{false, true} {
			model := And
			if or {
				model = Or
			}
			w := (&Trial{Model: model, Waits: make([]int, n)}).begin()
			for i := range n {
				w.wait(i, []dmutex.NodeID{dmutex.NodeID((i+1)%n + 1)})
			}
			w.drain()
			w.detect(0)
			want := [withdraw + 1]int{deadlock.Probe: n}
			if or {
				want = [withdraw + 1]int{deadlock.Query: n, deadlock.Reply: n}
			}
			require.Equal(t, want, w.drain())
			require.True(t, w.nodes[0].Deadlocked())
		}
	}
}
