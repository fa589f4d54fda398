package central_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var (
	fifo      = dmutextest.FIFO
	unordered = dmutextest.Unordered
)

// Every run of these groups is safe and ends with every request granted or
// withdrawn. The numbers are what is there: a change of one is a finding. An
// entry costs 3 messages in every run, and the coordinator's own none; runs
// with cancels may have fewer entries. DMUTEX_LONG=1 adds the large groups.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		nodes             int
		coordinator       dmutex.NodeID
		requests, cancels []int
		holder            dmutex.NodeID
		network           dmutextest.Network
		states            int
		messages          [2]int // least and greatest of a whole run
		most              int    // messages in a channel
		long              bool
	}{
		{2, 1, []int{3}, []int{3}, 0, unordered, 4_153, [2]int{3, 9}, 2, false},
		{3, 1, []int{3}, nil, 0, unordered, 10_784, [2]int{18, 18}, 2, false},
		{3, 1, []int{2}, []int{2}, 0, unordered, 48_563, [2]int{6, 12}, 2, false},
		{3, 2, []int{2}, []int{2}, 0, unordered, 48_563, [2]int{6, 12}, 2, false},
		{3, 3, []int{2}, []int{2}, 0, fifo, 41_219, [2]int{6, 12}, 2, false},
		{3, 1, []int{2}, []int{1}, 1, unordered, 24_760, [2]int{6, 12}, 2, false},
		{3, 1, []int{2}, []int{1}, 2, unordered, 26_863, [2]int{7, 13}, 2, false},
		{3, 3, []int{2}, []int{1}, 2, unordered, 26_863, [2]int{7, 13}, 2, false},
		{4, 1, []int{2}, nil, 0, unordered, 52_204, [2]int{18, 18}, 2, false},
		{4, 1, []int{0, 2, 2, 2}, nil, 0, unordered, 3_584, [2]int{18, 18}, 2, false},
		{4, 2, []int{2}, []int{1}, 0, unordered, 1_851_582, [2]int{9, 18}, 2, true},
		{5, 1, []int{1}, []int{1}, 0, unordered, 93_360, [2]int{12, 12}, 1, true},
	} {
		t.Run(fmt.Sprint(tt.nodes, " at ", tt.coordinator, " x", tt.requests, "-", tt.cancels, " holder ", tt.holder, " ", tt.network), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: central.At(tt.coordinator),
				Members:   dmutextest.Nodes(tt.nodes),
				Holder:    tt.holder,
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Network:   tt.network,
			})
			require.Equal(t, tt.most, r.Most, "most messages in a channel")
			require.Equal(t, tt.messages, [2]int{r.Least, r.Greatest}, "messages")
			require.Equal(t, tt.states, r.States, "states")
		})
	}
}
