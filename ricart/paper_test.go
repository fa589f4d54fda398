package ricart

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

// "The algorithm sends only 2*(N - 1) messages, where N is the number of nodes
// in the network, per critical section invocation." (Ricart and Agrawala,
// abstract.) See also TestExplore.
func TestMessages(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		r, err := dmutextest.Walk(dmutextest.Config{
			Algorithm: New,
			Members:   dmutextest.Nodes(n),
			Requests:  []int{requests},
			Network:   dmutextest.Unordered,
		}, 1, 10)
		require.NoError(t, err)
		require.Equal(t, n*requests*2*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)
		require.True(t, r.Dense)
	}
}

// "... unbounded sequence numbers are used to provide first-come first-served
// priority into the critical section." (Ricart and Agrawala, abstract.) In the
// order of the grants the requests' stamps rise: the explorer checks it if it
// takes them for the fences.
//
// LESSONS L51.
func TestGrantsFollowStamps(t *testing.T) {
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: machinetest.Probe[*machine]{Fence: func(m *machine) uint64 {
			return m.Stamp().Clock<<8 | uint64(m.Self())
		}}.Of(New),
		Members:  dmutextest.Nodes(3),
		Requests: []int{2},
		Network:  dmutextest.Unordered,
	})
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.False(t, r.Dense, "stamps are no count of the grants")
}

// The algorithm relies on every message arriving: lose one, and somebody waits
// for ever. That messages may be repeated and overtake each other, see
// TestExplore.
func TestNeedsEveryMessage(t *testing.T) {
	dmutextest.Refute(t, dmutextest.Config{
		Algorithm: New,
		Members:   dmutextest.Nodes(2),
		Requests:  []int{1},
		Network:   dmutextest.Network{Losses: 1},
	}, dmutextest.ErrDeadlock, "testdata/loss.txt")
}

// Groups too large to explore, with cancels.
func TestWalk(t *testing.T) {
	r, err := dmutextest.Walk(dmutextest.Config{
		Algorithm: New,
		Members:   []dmutex.NodeID{80, 3, 12, 32, 6, 5},
		Holder:    12,
		Fence:     9,
		Requests:  []int{5},
		Cancels:   []int{3},
		Network:   dmutextest.Network{Unordered: true, Duplicates: 20},
	}, 1, 50)
	require.NoError(t, err)
	require.True(t, r.Dense)
}
