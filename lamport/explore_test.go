package lamport

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// An entry costs 3(N-1) messages; without some replies 2(N-1) to 3(N-1). At most 5
// messages are in flight from one node to another.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fifo := dmutextest.Network{Channel: 5}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Name: "plain", Algorithm: New, Nodes: 2, Network: fifo, Requests: []int{2}, States: 1_633, Messages: [2]int{12, 12}},
		{Name: "plain", Algorithm: New, Nodes: 2, Network: fifo, Requests: []int{3}, States: 13_974, Messages: [2]int{18, 18}},
		{Name: "plain", Algorithm: New, Nodes: 2, Network: fifo, Requests: []int{3}, Cancels: []int{3}, States: 397_205, Messages: [2]int{6, 18}},
		{Name: "plain", Algorithm: New, Nodes: 2, Holder: 2, Network: fifo, Requests: []int{3}, Cancels: []int{1}, States: 191_639, Messages: [2]int{13, 19}},
		{Name: "plain", Algorithm: New, Nodes: 3, Network: fifo, Requests: []int{1}, States: 547_106, Messages: [2]int{18, 18}},
		{Name: "plain", Algorithm: New, Nodes: 3, Holder: 3, Network: fifo, Requests: []int{1, 1, 0}, Cancels: []int{1}, States: 126_107, Messages: [2]int{14, 14}},
		{Name: "plain", Algorithm: New, Nodes: 3, Network: fifo, Requests: []int{1}, Cancels: []int{1}, States: 3_284_043, Messages: [2]int{18, 18}, Long: true},
		{Name: "plain", Algorithm: New, Nodes: 3, Network: fifo, Requests: []int{2, 1, 1}, States: 15_873_355, Messages: [2]int{24, 24}, Long: true},

		{Name: "omitting", Algorithm: OmitReplies, Nodes: 2, Network: fifo, Requests: []int{2}, States: 992, Messages: [2]int{8, 12}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 2, Network: fifo, Requests: []int{3}, States: 6_307, Messages: [2]int{12, 18}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 2, Network: fifo, Requests: []int{3}, Cancels: []int{3}, States: 177_881, Messages: [2]int{4, 18}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 2, Holder: 2, Network: fifo, Requests: []int{3}, Cancels: []int{1}, States: 77_343, Messages: [2]int{9, 19}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 3, Network: fifo, Requests: []int{1}, States: 212_347, Messages: [2]int{12, 18}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 3, Holder: 3, Network: fifo, Requests: []int{1, 1, 0}, Cancels: []int{1}, States: 80_065, Messages: [2]int{10, 14}},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 3, Network: fifo, Requests: []int{1}, Cancels: []int{1}, States: 1_386_425, Messages: [2]int{12, 18}, Long: true},
		{Name: "omitting", Algorithm: OmitReplies, Nodes: 3, Network: fifo, Requests: []int{2, 1, 1}, States: 3_562_837, Messages: [2]int{16, 24}, Long: true},
	})
}

// A node that omits replies and a node that sends all of them work together.
func TestMixed(t *testing.T) {
	machinetest.Explore(t, dmutextest.Config{
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			if s.Self == 1 {
				return New(s)
			}
			return OmitReplies(s)
		},
		Members:  dmutextest.Nodes(2),
		Requests: []int{3},
		Cancels:  []int{1},
	})
}

// Nodes share the lock, and no law is broken. With DMUTEX_LONG=1 all of it.
func TestExploreShared(t *testing.T) {
	one, two := []int{1}, []int{2}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Name: "New", Algorithm: New, Nodes: 2, Stamped: true, Requests: one, Shares: one, Cancels: one, States: 48_498},
		{Name: "New", Algorithm: New, Nodes: 2, Stamped: true, Requests: two, Shares: one, States: 98_669},
		{Name: "New", Algorithm: New, Nodes: 2, Stamped: true, Requests: two, Shares: two, States: 1_525_657, Long: true},
		{Name: "New", Algorithm: New, Nodes: 2, Stamped: true, Requests: one, Shares: one, Sharers: []dmutex.NodeID{1, 2}, States: 26_922},
		{Name: "New", Algorithm: New, Nodes: 2, Stamped: true, Requests: one, Shares: one, Cancels: one, Forgets: one, States: 480_738, Long: true},
		{Name: "New", Algorithm: New, Nodes: 3, Stamped: true, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 0}, Sharers: []dmutex.NodeID{3}, Cancels: []int{1, 0, 0}, States: 256_083},
		{Name: "New", Algorithm: New, Nodes: 3, Stamped: true, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 1}, States: 913_575, Long: true},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 2, Stamped: true, Requests: one, Shares: one, Cancels: one, States: 28_632},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 2, Stamped: true, Requests: two, Shares: one, States: 46_508},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 2, Stamped: true, Requests: two, Shares: two, States: 629_802, Long: true},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 2, Stamped: true, Requests: one, Shares: one, Sharers: []dmutex.NodeID{1, 2}, States: 14_058},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 3, Stamped: true, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 0}, Sharers: []dmutex.NodeID{3}, Cancels: []int{1, 0, 0}, States: 114_881},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 3, Stamped: true, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 1}, Cancels: []int{1, 0, 0}, States: 1_260_025, Long: true},
		{Name: "OmitReplies", Algorithm: OmitReplies, Nodes: 3, Stamped: true, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 1}, States: 365_896, Long: true},
	})
}
