package maekawa

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

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

// lawful checks what the theory of operation claims of a machine, after each
// step, so that the explorer sees it refuse where it does not hold.
var lawful = mutation{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
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

// Every interleaving of small groups: mutual exclusion, fences that rise
// without gaps, no deadlock, nothing left behind, every run ends; and the
// number of messages is within its bound, 6 for each entry and other arbiter.
// At most 6 messages are on their way from one node to another.
//
// The long form, DMUTEX_LONG=1, adds the groups marked long, in about a minute
// and 2.5 GB. The one without a number of states is too large; it is searched as
// far as the limit.
func TestExplore(t *testing.T) {
	const limit = 12_000_000
	fifo, unordered := dmutextest.Network{Channel: 6}, dmutextest.Unordered
	for _, c := range []struct {
		name            string
		quorums         rows
		network         dmutextest.Network
		requests        []int
		cancels         []int
		holder          dmutex.NodeID
		long            bool
		states          int
		least, greatest int
	}{
		{"pair, cancelled", pair, fifo, []int{3}, []int{3}, 0, false, 15655, 6, 23},
		{"pair", pair, unordered, []int{3}, []int{0}, 0, false, 59043, 18, 23},
		{"pair, cancelled", pair, unordered, []int{3}, []int{1}, 0, true, 504618, 12, 23},
		{"pairs", pairs, fifo, []int{2}, []int{0}, 0, false, 24503, 18, 23},
		{"pairs", pairs, fifo, []int{3}, []int{0}, 0, true, 226354, 27, 35},
		{"pairs, two cancelled", pairs, fifo, []int{2}, []int{1, 1, 0}, 0, false, 154352, 12, 23},
		{"pairs, cancelled", pairs, fifo, []int{2}, []int{1}, 0, true, 391343, 9, 23},
		{"pairs", pairs, unordered, []int{2, 2, 1}, []int{0}, 0, false, 47923, 15, 19},
		{"pairs", pairs, unordered, []int{2}, []int{0}, 0, true, 559136, 18, 23},
		{"full, cancelled", full, fifo, []int{1}, []int{1}, 0, false, 161232, 18, 26},
		{"full", full, fifo, []int{2}, []int{0}, 0, false, 1156937, 36, 53},
		{"full", full, fifo, []int{3}, []int{0}, 0, true, 7317795, 54, 80},
		{"others, carried", others, fifo, []int{1}, []int{0}, 2, false, 71159, 20, 29},
		{"others, cancelled", others, unordered, []int{1}, []int{1}, 0, true, 1267380, 18, 23},
		{"others", others, fifo, []int{2}, []int{0}, 0, true, 5500627, 36, 51},
		{"grid", grid, fifo, []int{1}, []int{0}, 0, false, 853124, 24, 35},
		{"grid, carried", grid, fifo, []int{1, 1, 1, 0}, []int{0}, 4, false, 88181, 20, 29},
		{"grid, cancelled", grid, fifo, []int{1, 1, 1, 0}, []int{1}, 0, false, 101757, 18, 25},
		{"grid, cancelled", grid, fifo, []int{1}, []int{1}, 0, true, 9278833, 24, 35},
		{"grid", grid, unordered, []int{1, 1, 1, 0}, []int{0}, 0, false, 55213, 18, 25},
		{"grid", grid, unordered, []int{1}, []int{0}, 0, true, 11943407, 24, 36},
		{"fano, four ask", fano, fifo, []int{1, 1, 1, 1, 0, 0, 0}, []int{0}, 0, false, 414537, 24, 31},
		{"fano, five ask", fano, fifo, []int{1, 1, 1, 1, 1, 0, 0}, []int{0}, 0, true, 0, 0, 0},
	} {
		t.Run(c.name+", "+c.network.String(), func(t *testing.T) {
			if c.long && !long {
				t.Skip("the long form: DMUTEX_LONG=1")
			}
			report, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: lawful.Of(With(c.quorums.of)),
				Members:   dmutextest.Nodes(len(c.quorums)),
				Requests:  c.requests,
				Cancels:   c.cancels,
				Holder:    c.holder,
				Network:   c.network,
				MaxStates: limit,
			})
			require.NoError(t, err)
			t.Log(report)
			require.True(t, report.Dense)
			require.LessOrEqual(t, report.Most, 6, "messages in a channel")
			require.LessOrEqual(t, report.Greatest, 6*c.quorums.asked(c.requests, c.holder))
			if c.states == 0 {
				require.GreaterOrEqual(t, report.States, limit, "it is complete: write down the number")
				return
			}
			require.True(t, report.Complete)
			require.Equal(t, []int{c.states, c.least, c.greatest}, []int{report.States, report.Least, report.Greatest})
		})
	}
}

// Random runs of groups that are too large to explore: thousands, and in the
// long form 500 times as many, in about four minutes.
func TestWalk(t *testing.T) {
	times, batches := 1, 1
	if long {
		times, batches = 25, 20
	}
	for _, c := range []struct {
		name      string
		nodes     int
		algorithm dmutex.Algorithm
		runs      int
		cancels   int
		network   dmutextest.Network
	}{
		{"fano", 7, With(fano.of), 2000, 0, dmutextest.FIFO},
		{"fano, cancelled", 7, With(fano.of), 2000, 1, dmutextest.FIFO},
		{"fano, cancelled, unordered", 7, With(fano.of), 2000, 1, dmutextest.Unordered},
		{"grid of 9, cancelled", 9, New, 200, 1, dmutextest.FIFO},
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
