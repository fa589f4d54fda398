package ricart

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

var (
	unordered = dmutextest.Network{Unordered: true}
	repeating = dmutextest.Network{Unordered: true, Duplicates: 2}
)

// An entry costs 2(N-1) messages in every run. A request that is withdrawn costs the
// same, and one that is taken up again nothing, so runs with cancels may cost less.
//
// LESSONS L81.
func TestExplore(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: New, Nodes: 2, Network: unordered, Requests: []int{3}, Cancels: []int{3}, States: 9_958, Messages: [2]int{4, 12}, Most: 2},
		{Algorithm: New, Nodes: 2, Network: unordered, Requests: []int{5}, Cancels: []int{5}, States: 112_283, Messages: [2]int{4, 20}, Most: 2},
		{Algorithm: New, Nodes: 2, Network: repeating, Requests: []int{2}, Cancels: []int{1}, States: 61_891, Messages: [2]int{4, 10}, Most: 4},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 19_571, Messages: [2]int{12, 12}, Most: 2},
		{Algorithm: New, Nodes: 3, Requests: []int{2}, States: 52_149, Messages: [2]int{24, 24}, Most: 2},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{2}, States: 85_662, Messages: [2]int{24, 24}, Most: 2},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1, 0, 0}, States: 211_896, Messages: [2]int{20, 24}, Most: 2},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{0, 0, 1}, States: 224_675, Messages: [2]int{20, 24}, Most: 2},
		{Algorithm: New, Nodes: 3, Holder: 2, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 19_820, Messages: [2]int{12, 12}, Most: 2},
		{Algorithm: New, Nodes: 3, Holder: 3, Network: unordered, Requests: []int{2}, States: 85_731, Messages: [2]int{24, 24}, Most: 2},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 1_355_647, Messages: [2]int{12, 24}, Most: 2, Long: true},
		{Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{3}, States: 659_355, Messages: [2]int{36, 36}, Most: 2, Long: true},
		{Algorithm: New, Nodes: 4, Network: unordered, Requests: []int{1}, States: 2_226_965, Messages: [2]int{24, 24}, Most: 2, Long: true},
		{Algorithm: New, Nodes: 4, Network: unordered, Requests: []int{1}, Cancels: []int{1, 1, 0, 0}, States: 8_352_630, Messages: [2]int{24, 24}, Most: 2, Long: true},
	})
}

// Nodes share the lock, and no law is broken. With DMUTEX_LONG=1 all of it.
func TestExploreShared(t *testing.T) {
	one, two := []int{1}, []int{2}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: New, Nodes: 2, Stamped: true, Network: unordered, Requests: one, Shares: one, Cancels: one, States: 14_546},
		{Algorithm: New, Nodes: 2, Stamped: true, Requests: two, Shares: two, States: 24_337},
		{Algorithm: New, Nodes: 2, Stamped: true, Requests: two, Shares: one, Cancels: one, States: 26_845},
		{Algorithm: New, Nodes: 2, Stamped: true, Network: unordered, Requests: two, Shares: one, Cancels: one, States: 293_918, Long: true},
		{Algorithm: New, Nodes: 2, Stamped: true, Network: unordered, Requests: two, Shares: two, States: 1_502_794, Long: true},
		{Algorithm: New, Nodes: 2, Stamped: true, Requests: two, Shares: two, Cancels: one, States: 223_136, Long: true},
		{Algorithm: New, Nodes: 2, Stamped: true, Requests: one, Shares: two, Cancels: one, Forgets: one, States: 604_915, Long: true},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 1}, States: 10_723},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{1, 0, 0}, Shares: []int{0, 1, 1}, Cancels: []int{1, 0, 0}, States: 29_502},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{1, 1, 0}, Shares: []int{0, 0, 1}, Sharers: []dmutex.NodeID{2, 3}, States: 20_591},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0}, Forgets: one, States: 1_260_812, Long: true},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{0, 1, 1}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 1}, States: 1_091_419, Long: true},
		{Algorithm: New, Nodes: 3, Stamped: true, Network: unordered, Requests: []int{1, 0, 0}, Shares: []int{1, 1, 1}, States: 148_279, Long: true},
	})
}

type carvalhoProbe = machinetest.Probe[*carvalho]

// lawfulCarvalho checks after each step what should hold of a machine.
var lawfulCarvalho = carvalhoProbe{Excludes: (*carvalho).Excludes, After: func(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
	for j := range m.kept {
		switch {
		case m.kept[j] && m.deferred[j] != 0:
			return nil, dmutex.Misuse("a permission that is asked for is kept")
		case m.kept[j] && m.awaiting[j]:
			return nil, dmutex.Misuse("a permission that is kept is awaited")
		case m.deferred[j] != 0 && m.Stamp().Clock == 0:
			return nil, dmutex.Misuse("an idle node owes a reply")
		}
	}
	return out, nil
}}

// An entry costs between 0 and 2(N-1) messages, and more only where a REQUEST is
// repeated, and so answered again.
func TestExploreCarvalho(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 2, Requests: []int{3}, Cancels: []int{3}, States: 5_884, Messages: [2]int{4, 12}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 2, Network: unordered, Requests: []int{3}, Cancels: []int{3}, States: 6_960, Messages: [2]int{4, 12}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 2, Network: repeating, Requests: []int{3}, Cancels: []int{1}, States: 387_136, Messages: [2]int{4, 14}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 2, Holder: 2, Network: unordered, Requests: []int{3}, Cancels: []int{1}, States: 2_806, Messages: [2]int{4, 12}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 19_668, Messages: [2]int{12, 12}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Holder: 3, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 19_917, Messages: [2]int{12, 12}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Network: repeating, Requests: []int{1}, States: 182_776, Messages: [2]int{12, 18}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Requests: []int{2}, States: 15_638, Messages: [2]int{12, 24}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Network: unordered, Requests: []int{2}, States: 24_504, Messages: [2]int{12, 24}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Requests: []int{2}, Cancels: []int{1}, States: 260_422, Messages: [2]int{12, 24}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Network: unordered, Requests: []int{3}, States: 246_255, Messages: [2]int{12, 36}},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{2}, States: 854_685, Messages: [2]int{12, 24}, Long: true},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 4, Requests: []int{1}, States: 1_484_820, Messages: [2]int{24, 24}, Long: true},
		{Algorithm: lawfulCarvalho.Of(Carvalho), Nodes: 4, Network: unordered, Requests: []int{1}, States: 2_226_965, Messages: [2]int{24, 24}, Long: true},
	})
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
