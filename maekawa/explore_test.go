package maekawa

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// With DMUTEX_LONG=1 the tests search farther.
var long = os.Getenv("DMUTEX_LONG") == "1"

// rows are the quorums of nodes 1, 2 and so on.
type rows [][]dmutex.NodeID

func (r rows) of(site dmutex.NodeID) []dmutex.NodeID { return r[site-1] }

// asked returns how many others are asked in all.
func (r rows) asked(requests []int, holder dmutex.NodeID) (n int) {
	for i, quorum := range r {
		self := dmutex.NodeID(i + 1)
		entries := requests[i%len(requests)]
		if self == holder {
			entries++
		}
		for _, k := range quorum {
			if k != self {
				n += entries
			}
		}
	}
	return n
}

var (
	pair   = rows{{1, 2}, {1, 2}}
	pairs  = rows{{1, 2}, {2, 3}, {1, 3}}          // three intersections
	others = rows{{2, 3}, {1, 3}, {1, 2}}          // nobody asks itself
	full   = rows{{1, 2, 3}, {1, 2, 3}, {1, 2, 3}} // everybody asks everybody
	grid   = rows{{1, 2, 3}, {1, 2, 4}, {1, 3, 4}, {2, 3, 4}}
	fano   = rows{{1, 2, 4}, {2, 3, 5}, {3, 4, 6}, {4, 5, 7}, {1, 5, 6}, {2, 6, 7}, {1, 3, 7}}
)

var quorums = map[string]rows{"pair": pair, "pairs": pairs, "others": others, "full": full, "grid": grid, "fano": fano}

// lawful checks after each step what the theory of operation claims of a machine. If
// a claim is false, the machine refuses the input, and the explorer fails.
var lawful = mutation{Excludes: (*machine).Excludes, After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
	broken := ""
	for k, e := range m.queue {
		switch {
		case k > 0 && !m.queue[k-1].request.Less(e.request):
			broken = "the queue is in order"
		case m.waiting(e.request.Node) != e.request.Clock:
			broken = "a node waits once"
		case m.vote.Clock == 0:
			broken = "nobody waits for a vote that is free"
		case !e.told && (k > 0 || !e.request.Less(m.vote) || !m.asked):
			broken = "M2"
		}
	}
	for _, b := range m.ballots {
		if b != (ballot{}) && !m.Pending() || b.locked && b.yielded {
			broken = "ballots are those of a pending request"
		}
	}
	if broken != "" {
		return nil, dmutex.Misuse("this is not so: " + broken)
	}
	return out, nil
}}

// Every interleaving of small groups. No run has more than 6 messages for each entry and
// other arbiter, and at most 6 are in flight from one node to another. With
// DMUTEX_LONG=1 it takes a minute and 2.5 GB.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fifo, unordered := dmutextest.Network{Channel: 6}, dmutextest.Network{Channel: 6, Unordered: true}
	all := []machinetest.Exploration{
		{Name: "pair", Network: fifo, Requests: []int{3}, Cancels: []int{3}, States: 15_655, Messages: [2]int{6, 23}},
		{Name: "pair", Network: unordered, Requests: []int{3}, States: 59_043, Messages: [2]int{18, 23}},
		{Name: "pair", Network: unordered, Requests: []int{3}, Cancels: []int{1}, States: 504_618, Messages: [2]int{12, 23}, Long: true},
		{Name: "pairs", Network: fifo, Requests: []int{2}, States: 24_503, Messages: [2]int{18, 23}},
		{Name: "pairs", Network: fifo, Requests: []int{3}, States: 226_354, Messages: [2]int{27, 35}, Long: true},
		{Name: "pairs", Network: fifo, Requests: []int{2}, Cancels: []int{1, 1, 0}, States: 154_352, Messages: [2]int{12, 23}},
		{Name: "pairs", Network: fifo, Requests: []int{2}, Cancels: []int{1}, States: 391_343, Messages: [2]int{9, 23}, Long: true},
		{Name: "pairs", Network: unordered, Requests: []int{2, 2, 1}, States: 47_923, Messages: [2]int{15, 19}},
		{Name: "pairs", Network: unordered, Requests: []int{2}, States: 559_136, Messages: [2]int{18, 23}, Long: true},
		{Name: "full", Network: fifo, Requests: []int{1}, Cancels: []int{1}, States: 161_232, Messages: [2]int{18, 26}},
		{Name: "full", Network: fifo, Requests: []int{2}, States: 1_156_937, Messages: [2]int{36, 53}, Long: true},
		{Name: "full", Network: fifo, Requests: []int{3}, States: 7_317_795, Messages: [2]int{54, 80}, Long: true},
		{Name: "others", Holder: 2, Network: fifo, Requests: []int{1}, States: 71_159, Messages: [2]int{20, 29}},
		{Name: "others", Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 1_267_380, Messages: [2]int{18, 23}, Long: true},
		{Name: "others", Network: fifo, Requests: []int{2}, States: 5_500_627, Messages: [2]int{36, 51}, Long: true},
		{Name: "grid", Network: fifo, Requests: []int{1}, States: 853_124, Messages: [2]int{24, 35}},
		{Name: "grid", Holder: 4, Network: fifo, Requests: []int{1, 1, 1, 0}, States: 88_181, Messages: [2]int{20, 29}},
		{Name: "grid", Network: fifo, Requests: []int{1, 1, 1, 0}, Cancels: []int{1}, States: 101_757, Messages: [2]int{18, 25}},
		{Name: "grid", Network: fifo, Requests: []int{1}, Cancels: []int{1}, States: 9_278_833, Messages: [2]int{24, 35}, Long: true},
		{Name: "grid", Network: unordered, Requests: []int{1, 1, 1, 0}, States: 55_213, Messages: [2]int{18, 25}},
		{Name: "grid", Network: unordered, Requests: []int{1}, States: 11_943_407, Messages: [2]int{24, 36}, Long: true},
		{Name: "fano", Network: fifo, Requests: []int{1, 1, 1, 1, 0, 0, 0}, States: 414_537, Messages: [2]int{24, 31}},
	}
	for i := range all {
		e, q := &all[i], quorums[all[i].Name]
		e.Algorithm, e.Nodes = lawful.Of(With(q.of)), len(q)
		require.LessOrEqual(t, e.Messages[1], 6*q.asked(e.Requests, e.Holder))
	}
	machinetest.ExploreAll(t, all)
}

// Five nodes that ask in the Fano plane are too many to explore to the end.
func TestExploreCut(t *testing.T) {
	machinetest.Long(t)
	const limit = 12_000_000
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: lawful.Of(With(fano.of)),
		Members:   dmutextest.Nodes(7),
		Requests:  []int{1, 1, 1, 1, 1, 0, 0},
		Network:   dmutextest.Network{Channel: 6},
		MaxStates: limit,
	})
	require.NoError(t, err)
	t.Log(r)
	require.GreaterOrEqual(t, r.States, limit, "it is complete: explore it to the end")
}

// Random runs of groups that are too large to explore: thousands, and in the
// long form 500 times as many, in about four minutes.
func TestWalk(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	times, batches := 4, 1
	switch {
	case long:
		times, batches = 100, 20
	case quicktest.On():
		times = 1
	}
	for _, c := range []struct {
		name      string
		nodes     int
		algorithm dmutex.Algorithm
		runs      int
		cancels   int
		network   dmutextest.Network
	}{
		{name: "fano", nodes: 7, algorithm: With(fano.of), runs: 500},
		{name: "fano, canceled", nodes: 7, algorithm: With(fano.of), runs: 500, cancels: 1},
		{name: "fano, canceled, unordered", nodes: 7, algorithm: With(fano.of), runs: 500, cancels: 1, network: dmutextest.Network{Unordered: true}},
		{name: "grid of 9, canceled", nodes: 9, algorithm: New, runs: 50, cancels: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			runs := times * c.runs
			for k := range batches {
				report, err := dmutextest.Walk(dmutextest.Config{
					Algorithm: lawful.Of(c.algorithm),
					Members:   dmutextest.Nodes(c.nodes),
					Requests:  []int{1},
					Cancels:   []int{c.cancels},
					Network:   c.network,
				}, uint64(k*runs), runs)
				require.NoError(t, err)
				require.True(t, report.Dense)
				if k == 0 {
					t.Log(report)
				}
			}
		})
	}
}
