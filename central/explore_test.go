package central

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
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

// With a witness every entry costs 3 messages in every run.
func TestExploreWitnessed(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Algorithm: Witnessed, Nodes: 2, Network: unordered, Requests: []int{3}, Cancels: []int{2}, States: 29_987, Messages: [2]int{6, 18}, Most: 4},
		{Algorithm: Witnessed, Nodes: 2, Requests: []int{3}, Cancels: []int{2}, States: 9_363, Messages: [2]int{6, 18}, Most: 2},
		{Algorithm: Witnessed, Nodes: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 92_227, Messages: [2]int{9, 18}, Most: 3},
		{Algorithm: Witnessed, Nodes: 3, Holder: 1, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 2_189, Messages: [2]int{10, 10}, Most: 3},
		{Algorithm: Witnessed, Nodes: 3, Holder: 3, Home: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 184_512, Messages: [2]int{10, 19}, Most: 4, Long: true},
		{Algorithm: Witnessed, Nodes: 3, Holder: 3, Network: unordered, Requests: []int{2}, Cancels: []int{1}, States: 92_676, Messages: [2]int{10, 19}, Most: 3, Long: true},
		{Algorithm: Witnessed, Nodes: 3, Holder: 2, Requests: []int{2}, Cancels: []int{1}, States: 48_940, Messages: [2]int{10, 19}, Most: 2},
		{Algorithm: Witnessed, Nodes: 4, Network: unordered, Requests: []int{1}, Cancels: []int{1}, States: 12_816, Messages: [2]int{12, 12}, Most: 2},
		{Algorithm: Witnessed, Nodes: 4, Network: unordered, Requests: []int{2}, States: 184_436, Messages: [2]int{24, 24}, Most: 3, Long: true},
	})
}

// Nodes share the lock, and no law is broken. With DMUTEX_LONG=1 all of it.
func TestExploreShared(t *testing.T) {
	one, two := []int{1}, []int{2}
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{Name: "New", Algorithm: New, Nodes: 2, Network: unordered, Requests: one, Shares: one, Cancels: one, States: 5_610},
		{Name: "New", Algorithm: New, Nodes: 2, Network: unordered, Requests: two, Shares: one, Cancels: one, States: 126_388},
		{Name: "New", Algorithm: New, Nodes: 2, Requests: two, Shares: two, Cancels: two, States: 355_540, Long: true},
		{Name: "New", Algorithm: New, Nodes: 3, Network: unordered, Requests: one, Shares: one, States: 147_550},
		{Name: "New", Algorithm: New, Nodes: 3, Network: unordered, Requests: []int{2, 0, 0}, Shares: []int{0, 1, 1}, Cancels: []int{2, 0, 0}, States: 16_201},
		{Name: "New", Algorithm: New, Nodes: 3, Home: 2, Network: unordered, Requests: []int{0, 1, 1}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 1}, States: 42_865},
		{Name: "New", Algorithm: New, Nodes: 3, Home: 2, Network: unordered, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0}, Forgets: one, States: 15_439},
		{Name: "New", Algorithm: New, Nodes: 3, Requests: one, Shares: one, Cancels: one, States: 681_180, Long: true},
		{Name: "New", Algorithm: New, Nodes: 3, Requests: one, Shares: one, Forgets: one, States: 914_998, Long: true},
		{Name: "New", Algorithm: New, Nodes: 3, Sharers: []dmutex.NodeID{2, 3}, Network: unordered, Requests: one, Shares: []int{0, 1, 1}, States: 203_134, Long: true},
		{Name: "New", Algorithm: New, Nodes: 3, Sharers: []dmutex.NodeID{2, 3}, Requests: []int{1, 1, 0}, Shares: []int{0, 1, 1}, States: 2_679},
		{Name: "New", Algorithm: New, Nodes: 3, Sharers: []dmutex.NodeID{1, 2, 3}, Home: 2, Requests: one, Shares: one, Cancels: []int{1, 0, 1}, States: 442_806, Long: true},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 2, Network: unordered, Requests: one, Shares: one, Cancels: one, States: 28_511},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 2, Requests: two, Shares: two, States: 26_177},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Network: unordered, Requests: []int{1, 0, 1}, Shares: one, States: 75_648},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Network: unordered, Requests: one, Shares: one, States: 753_781, Long: true},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Home: 3, Network: unordered, Requests: []int{0, 2, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 2, 0}, States: 38_428},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Home: 2, Network: unordered, Requests: []int{0, 1, 1}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 1}, States: 54_209},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Home: 3, Network: unordered, Requests: []int{0, 1, 0}, Shares: []int{1, 0, 1}, Cancels: []int{0, 1, 0}, Forgets: one, States: 36_858},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Network: unordered, Requests: []int{0, 1, 0}, Shares: one, Forgets: one, States: 187_587, Long: true},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Sharers: []dmutex.NodeID{1, 2}, Requests: []int{1, 1, 0}, Shares: []int{0, 1, 1}, States: 3_558},
		{Name: "Witnessed", Algorithm: Witnessed, Nodes: 3, Sharers: []dmutex.NodeID{1, 3}, Requests: one, Shares: one, States: 123_938, Long: true},
	})
}

// The coordinator grants in the order of arrival: the first request in the queue never fits, and a
// request is granted at once only if no other one waits. A node that shares the lock is told if,
// and only if, a request waits.
func TestArrivalOrder(t *testing.T) {
	watched := machinetest.Probe[*machine]{After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		if len(m.queue()) > 0 && m.fits(m.queue()[0]) {
			return nil, errors.New("the first request in the queue fits")
		}
		for _, g := range m.granted() {
			if g.shares && (g.inquiries%2 == 1) != (len(m.queue()) > 0) {
				return nil, errors.New("a sharer was not told, or for no reason")
			}
		}
		return out, nil
	}}.Of(New)
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: watched, Members: dmutextest.Nodes(3), Network: unordered, Requests: []int{1}, Shares: []int{1},
	})
	require.NoError(t, err)
	require.True(t, r.Complete)
}

// A machine, the witness's too, may be forgotten whenever it says so.
func TestForgetWitnessed(t *testing.T) {
	for _, c := range []dmutextest.Config{
		{Members: dmutextest.Nodes(2), Requests: []int{2}, Cancels: []int{1}, Forgets: []int{2}},
		{Members: dmutextest.Nodes(3), Requests: []int{1}, Cancels: []int{1}, Forgets: []int{1}},
	} {
		c.Algorithm, c.Network = Witnessed, unordered
		r, err := dmutextest.Explore(c)
		require.NoError(t, err)
		require.True(t, r.Complete, r)
	}
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
