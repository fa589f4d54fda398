package central

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var unordered = dmutextest.Network{Unordered: true}

// An entry costs 3 messages in every run, and none for the coordinator's own; runs
// with cancels may have fewer entries.
func TestExplore(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Name: "at 1", Algorithm: At(1), Nodes: 2, Network: unordered, Requests: []int{3}, Cancels: []int{3}, States: 4_153, Messages: [2]int{3, 9}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 3, Network: unordered, Requests: []int{3}, States: 10_784, Messages: [2]int{18, 18}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{2}, States: 48_563, Messages: [2]int{6, 12}, Most: 2},
		{Name: "at 2", Algorithm: At(2), Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{2}, States: 48_563, Messages: [2]int{6, 12}, Most: 2},
		{Name: "at 3", Algorithm: At(3), Nodes: 3, Requests: []int{2}, Cancels: []int{2}, States: 41_219, Messages: [2]int{6, 12}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 3, Holder: 1, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 24_760, Messages: [2]int{6, 12}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 3, Holder: 2, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 26_863, Messages: [2]int{7, 13}, Most: 2},
		{Algorithm: New, Nodes: 3, Holder: 2, Home: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 26_863, Messages: [2]int{7, 13}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 4, Network: unordered, Requests: []int{2}, States: 52_204, Messages: [2]int{18, 18}, Most: 2},
		{Name: "at 1", Algorithm: At(1), Nodes: 4, Network: unordered, Requests: []int{0, 2, 2, 2}, States: 3_584, Messages: [2]int{18, 18}, Most: 2},
		{Name: "at 2", Algorithm: At(2), Nodes: 4, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 1_851_582, Messages: [2]int{9, 18}, Most: 2, Long: true},
		{Name: "at 1", Algorithm: At(1), Nodes: 5, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 93_360, Messages: [2]int{12, 12}, Most: 1, Long: true},
	})
}

// Groups too large to explore, with cancels.
func TestWalk(t *testing.T) {
	r, err := dmutextest.Walk(dmutextest.Config{
		Algorithm: At(6),
		Members:   []dmutex.NodeID{80, 3, 12, 32, 6, 5},
		Holder:    12,
		Fence:     9,
		Requests:  []int{5},
		Cancels:   []int{3},
		Network:   dmutextest.Network{Unordered: true},
	}, 1, 50)
	require.NoError(t, err)
	require.True(t, r.Dense)
}
