package ricart_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
	"github.com/dmutex/dmutex/ricart"
)

var (
	fifo      = dmutextest.FIFO
	unordered = dmutextest.Unordered
	repeating = dmutextest.Network{Unordered: true, Duplicates: 2}
)

// Every run of these groups is safe and ends with every request granted or
// withdrawn. The numbers are what is there: a change of one is a finding. An
// entry costs 2(N-1) messages in every run; a request that is withdrawn costs
// the same, and one that is taken up again nothing, so runs with cancels may
// cost less. DMUTEX_LONG=1 adds the large groups.
//
// LESSONS L81.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		nodes             int
		requests, cancels []int
		holder            dmutex.NodeID
		network           dmutextest.Network
		states            int
		messages          [2]int // least and greatest of a whole run
		most              int    // messages in a channel
		long              bool
	}{
		{2, []int{3}, []int{3}, 0, unordered, 9_958, [2]int{4, 12}, 2, false},
		{2, []int{5}, []int{5}, 0, unordered, 112_283, [2]int{4, 20}, 2, false},
		{2, []int{2}, []int{1}, 0, repeating, 61_891, [2]int{4, 10}, 4, false},
		{3, []int{1}, []int{1}, 0, unordered, 19_571, [2]int{12, 12}, 2, false},
		{3, []int{2}, nil, 0, fifo, 52_149, [2]int{24, 24}, 2, false},
		{3, []int{2}, nil, 0, unordered, 85_662, [2]int{24, 24}, 2, false},
		{3, []int{2}, []int{1, 0, 0}, 0, unordered, 211_896, [2]int{20, 24}, 2, false},
		{3, []int{2}, []int{0, 0, 1}, 0, unordered, 224_675, [2]int{20, 24}, 2, false},
		{3, []int{1}, []int{1}, 2, unordered, 19_820, [2]int{12, 12}, 2, false},
		{3, []int{2}, nil, 3, unordered, 85_731, [2]int{24, 24}, 2, false},
		{3, []int{2}, []int{1}, 0, unordered, 1_355_647, [2]int{12, 24}, 2, true},
		{3, []int{3}, nil, 0, unordered, 659_355, [2]int{36, 36}, 2, true},
		{4, []int{1}, nil, 0, unordered, 2_226_965, [2]int{24, 24}, 2, true},
		{4, []int{1}, []int{1, 1, 0, 0}, 0, unordered, 8_352_630, [2]int{24, 24}, 2, true},
	} {
		t.Run(fmt.Sprint(tt.nodes, "x", tt.requests, "-", tt.cancels, " holder ", tt.holder, " ", tt.network), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: ricart.New,
				Members:   dmutextest.Nodes(tt.nodes),
				Holder:    tt.holder,
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Network:   tt.network,
			})
			require.Equal(t, tt.states, r.States, "states")
			require.Equal(t, tt.messages, [2]int{r.Least, r.Greatest}, "messages")
			require.Equal(t, tt.most, r.Most, "most messages in a channel")
		})
	}
}
