package ring

import (
	"testing"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// An entry costs at most N messages, and none where the token is.
func TestExplore(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: New, Nodes: 2, Requests: []int{3}, States: 224, Messages: [2]int{2, 12}},
		{Algorithm: New, Nodes: 2, Requests: []int{3}, Cancels: []int{3}, States: 3_520, Messages: [2]int{2, 12}},
		{Algorithm: New, Nodes: 2, Holder: 2, Requests: []int{3}, Cancels: []int{1}, States: 1_423, Messages: [2]int{2, 12}},
		{Algorithm: New, Nodes: 3, Requests: []int{1}, Cancels: []int{1}, States: 1_136, Messages: [2]int{5, 9}},
		{Algorithm: New, Nodes: 3, Home: 2, Requests: []int{1}, Cancels: []int{1}, States: 1_136, Messages: [2]int{5, 9}},
		{Algorithm: New, Nodes: 3, Requests: []int{2}, States: 4_281, Messages: [2]int{6, 18}},
		{Algorithm: New, Nodes: 3, Holder: 3, Requests: []int{2}, Cancels: []int{2}, States: 129_079, Messages: [2]int{5, 18}},
		{Algorithm: New, Nodes: 3, Requests: []int{3}, States: 29_128, Messages: [2]int{6, 27}},
		{Algorithm: New, Nodes: 4, Requests: []int{1}, Cancels: []int{1}, States: 40_435, Messages: [2]int{9, 16}},
		{Algorithm: New, Nodes: 4, Requests: []int{2}, States: 426_230, Messages: [2]int{12, 32}},
		{Name: "in another order", Algorithm: Order(2, 4, 1, 3), Nodes: 4, Requests: []int{1}, Cancels: []int{1}, States: 40_435, Messages: [2]int{9, 16}},
		{Algorithm: New, Nodes: 4, Requests: []int{2}, Cancels: []int{1}, States: 20_065_193, Messages: [2]int{9, 32}, Long: true},
	})
}

// Every request is granted, however time passes. At most one message is in flight from one node
// to another.
func TestExploreCirculating(t *testing.T) {
	one := dmutextest.Network{Unordered: true, Channel: 1}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Name: "pace 1", Algorithm: Circulate(1), Nodes: 2, Home: 2, Network: one, Requests: []int{1}, Ticks: []int{1}, States: 56, Messages: [2]int{4, 5}},
		{Name: "pace 1", Algorithm: Circulate(1), Nodes: 2, Network: one, Requests: []int{3}, Cancels: []int{3}, Ticks: []int{3}, States: 17_546, Messages: [2]int{6, 17}},
		{Name: "pace 1", Algorithm: Circulate(1), Nodes: 3, Network: one, Requests: []int{2}, Ticks: []int{2}, States: 3_369, Messages: [2]int{12, 22}},
		{Name: "pace 2", Algorithm: Circulate(2), Nodes: 3, Holder: 3, Network: one, Requests: []int{2}, Cancels: []int{1}, Ticks: []int{2}, States: 47_671, Messages: [2]int{4, 20}},
		{Name: "pace 1", Algorithm: Circulate(1), Nodes: 4, Network: one, Requests: []int{2}, Cancels: []int{1}, Ticks: []int{2}, States: 957_594, Messages: [2]int{12, 37}},
	})
}
