package deadlock

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

func long(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("long: DMUTEX_LONG=1 runs it")
	}
}

// Whatever nodes wait for, and however that changes while messages travel:
// every deadlock is declared by somebody in it, and none that does not exist.
// The numbers are what is there: a change of one is a finding. DMUTEX_LONG=1
// adds the large groups.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		or        bool
		waits     []int
		widest    []int
		atOnce    bool
		states    int
		deadlocks int // states in which one is declared
		long      bool
	}{
		{false, []int{2, 2}, nil, false, 1_182, 81, false},
		{false, []int{1, 1, 1}, nil, false, 16_558, 1_061, false},
		{false, []int{1, 1, 1}, []int{2, 1, 1}, true, 18_857, 3_570, false},
		{false, []int{2, 1, 1}, nil, true, 18_354, 1_313, false},
		{false, []int{1, 1, 1}, []int{2, 2, 2}, true, 352_664, 199_243, true},
		{false, []int{2, 2, 2}, nil, true, 586_290, 37_839, true},
		{false, []int{1, 1, 1, 1}, nil, true, 459_980, 32_827, true},
		{true, []int{2, 2}, nil, false, 4_060, 141, false},
		{true, []int{1, 1, 1}, nil, true, 18_954, 986, false},
		{true, []int{1, 1, 1}, nil, false, 72_077, 3_473, true},
		{true, []int{2, 1, 1}, nil, true, 138_439, 6_599, true},
		{true, []int{1, 1, 1}, []int{2, 1, 1}, true, 195_549, 4_455, true},
	} {
		t.Run(fmt.Sprint("or ", tt.or, " ", tt.waits, tt.widest, " at once ", tt.atOnce), func(t *testing.T) {
			if tt.long {
				long(t)
			}
			born := newAnd
			if tt.or {
				born = newOr
			}
			tr := &trial{born: born, or: tt.or, waits: tt.waits, widest: tt.widest, atOnce: tt.atOnce, limit: 5_000_000}
			r, run, err := tr.explore()
			require.NoError(t, err, run)
			require.Equal(t, report{tt.states, tt.deadlocks}, r)
		})
	}
}

// walk goes one way at random to the end, and counts what is sent.
func (w *world) walk(t *testing.T, rng *rand.Rand, seed int) {
	type edge struct {
		kind             Kind
		from, to         dmutex.NodeID
		initiator        dmutex.NodeID
		number, ofSender uint64
	}
	sent := map[edge]int{}
	for {
		steps := w.steps()
		if len(steps) == 0 {
			break
		}
		before := w.clone()
		steps[rng.IntN(len(steps))].do(w)
		require.NoError(t, w.declares(before), "seed %d", seed)
		require.NoError(t, w.declared(), "seed %d", seed)
		for c, queue := range w.channels {
			for _, it := range queue[min(len(queue), len(before.channels[c])):] {
				if it.kind == "" {
					m := it.msg
					e := edge{m.Kind, m.From, m.To, m.Initiator, m.Number, uint64(w.number[m.From-1])}
					if m.Kind == Reply { // at most one for each wait of the receiver's
						e.ofSender = uint64(w.number[m.To-1])
					}
					sent[e]++
					require.Equal(t, 1, sent[e], "%v twice, seed %d", m, seed)
				}
			}
		}
	}
}

// Groups too large to explore: 4 nodes that wait for up to 3 others, over and
// over. "at most one probe over each wait in a computation", and at most one
// REPLY to each QUERY.
func TestWalk(t *testing.T) {
	walks := 400
	if os.Getenv("DMUTEX_LONG") != "" {
		walks = 100_000
	}
	for _, or := range []bool{false, true} {
		born := newAnd
		if or {
			born = newOr
		}
		found := 0
		for seed := range walks {
			rng := rand.New(rand.NewPCG(1, uint64(seed)))
			tr := &trial{born: born, or: or, waits: []int{4, 4, 4, 4}, widest: slices.Repeat([]int{1 + seed%3}, 4), atOnce: seed%2 == 0}
			w := tr.begin()
			w.walk(t, rng, seed)
			if slices.ContainsFunc(w.machines, detector.Deadlocked) {
				found++
			}
		}
		require.NotZero(t, found)
		t.Log("or", or, "deadlocks in", found, "of", walks)
	}
}

// settled returns the machines of nodes that wait as a graph says, bit 4i+j for
// a wait of i for j, all requests being in.
func settled(born func(dmutex.NodeID, []dmutex.NodeID) detector, n, graph int) *world {
	w := (&trial{born: born, waits: make([]int, n)}).begin()
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
		w.left = make([]int, n)
		w.wait(i, on)
		for j := range n {
			for _, request := range w.channels[i*n+j] {
				w.arrive(i, j, request)
			}
			w.channels[i*n+j] = nil
		}
	}
	return w
}

// drain delivers everything and counts it by kind.
func (w *world) drain() (count [Reply + 1]int) {
	n := len(w.machines)
	for moved := true; moved; {
		moved = false
		for c := range w.channels {
			for len(w.channels[c]) > 0 {
				it := w.channels[c][0]
				w.channels[c] = w.channels[c][1:]
				count[it.msg.Kind]++
				w.arrive(c/n, c%n, it)
				moved = true
			}
		}
	}
	return count
}

// All wait-for graphs of 4 nodes that do not change, with each node as the
// initiator, against what is so. A computation sends one PROBE over each wait
// that can be reached from the initiator, no more and no less; one QUERY, and
// at most one REPLY, exactly one if it finds a deadlock. A node finds a deadlock
// that it is in itself: on a circle, or in the OR model if every way ends
// nowhere.
func TestGraphs(t *testing.T) {
	const n = 4
	for graph := range 1 << (n * n) {
		if graph&(1|1<<5|1<<10|1<<15) != 0 {
			continue // nobody waits for itself
		}
		and, or := settled(newAnd, n, graph), settled(newOr, n, graph)
		or.trial.or = true
		reach, onCircle, dead := and.reach(), and.truth(and.reach()), or.truth(or.reach())
		for i := range n {
			if !and.blocked(i) {
				continue
			}
			waits := 0
			for k := range n {
				if k == i || reach[i][k] {
					for j := range n {
						if and.waiting[k][j] {
							waits++
						}
					}
				}
			}
			a, o := and.clone(), or.clone()
			a.detect(i)
			o.detect(i)
			count, counted := a.drain(), o.drain()
			require.Equal(t, waits, count[Probe], "graph %x from %d", graph, i+1)
			require.Equal(t, onCircle[i], a.machines[i].Deadlocked(), "graph %x from %d", graph, i+1)
			require.Equal(t, waits, counted[Query], "graph %x from %d", graph, i+1)
			require.LessOrEqual(t, counted[Reply], waits, "graph %x from %d", graph, i+1)
			require.Equal(t, dead[i], counted[Reply] == waits, "graph %x from %d", graph, i+1)
			require.Equal(t, dead[i], o.machines[i].Deadlocked(), "graph %x from %d", graph, i+1)
		}
	}
}

// Around a lone circle of n nodes a computation costs n messages of each kind.
func TestCircle(t *testing.T) {
	for n := 2; n <= 50; n++ {
		for _, or := range []bool{false, true} {
			born := newAnd
			if or {
				born = newOr
			}
			w := (&trial{born: born, or: or, waits: make([]int, n)}).begin()
			w.left = make([]int, n)
			for i := range n {
				w.wait(i, []dmutex.NodeID{dmutex.NodeID((i+1)%n + 1)})
			}
			w.drain()
			w.detect(0)
			want := [Reply + 1]int{Probe: n}
			if or {
				want = [Reply + 1]int{Query: n, Reply: n}
			}
			require.Equal(t, want, w.drain())
			require.True(t, w.machines[0].Deadlocked())
		}
	}
}
