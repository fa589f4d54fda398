package deadlocktest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
)

// settled returns a world in which i waits for j if bit 4i+j of the graph is set, and all
// requests have arrived.
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

// All wait-for graphs of 4 nodes that do not change, with each node as the initiator. In
// the AND model a computation sends exactly one PROBE over each wait that the initiator
// reaches, and finds a deadlock exactly if the initiator is on a cycle. In the OR model
// it sends one QUERY and at most one REPLY over each of these waits. It gets all the
// REPLYs exactly if the initiator is deadlocked.
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
