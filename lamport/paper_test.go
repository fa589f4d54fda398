package lamport

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// "1. To request the resource, process Pi sends the message ... to every other
// process ... 2. When process Pj receives the message ..., it ... sends a
// (timestamped) acknowledgment message to Pi. 3. To release the resource,
// process Pi ... sends a (timestamped) Pi releases resource message to every
// other process." So an entry costs 3(N-1), whatever else goes on.
func TestMessages(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		c := dmutextest.Config{Algorithm: New, Members: dmutextest.Nodes(n), Requests: []int{requests}}
		r, err := dmutextest.Walk(c, 1, 10)
		require.NoError(t, err)
		require.Equal(t, n*requests*3*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)

		c.Algorithm = OmitReplies
		r, err = dmutextest.Walk(c, 1, 10)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Least, n*requests*2*(n-1), "%d nodes", n)
		require.LessOrEqual(t, r.Greatest, n*requests*3*(n-1), "%d nodes", n)
	}
}

// "(II) Different requests for the resource must be granted in the order in
// which they are made", that is by their stamps. The explorer checks this if
// the machines show their stamps as fences.
//
// LESSONS L51.
func TestGrantsFollowStamps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	stamp := func(m *machine) uint64 { return m.Stamp().Clock<<8 | uint64(m.Self()) }
	for _, algorithm := range []dmutex.Algorithm{
		machinetest.Probe[*machine]{Fence: stamp}.Of(New),
		machinetest.Probe[*omitting]{Fence: func(m *omitting) uint64 { return stamp(&m.machine) }}.Of(OmitReplies),
	} {
		for _, requests := range [][]int{{3, 3}, {1, 1, 1}} {
			if len(requests) > 2 && quicktest.On() {
				continue // it takes seconds
			}
			r, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: algorithm,
				Members:   dmutextest.Nodes(len(requests)),
				Requests:  requests,
			})
			require.NoError(t, err)
			require.True(t, r.Complete)
		}
	}
}

// When every node always requests, OmitReplies omits every reply. The rule in textbooks omits only
// replies to requests that cross the node's own: half of the replies when all first ask at once.
func TestTextbookRule(t *testing.T) {
	textbook := machinetest.Probe[*machine]{
		After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
			return slices.DeleteFunc(out, func(o dmutex.Message) bool {
				theirs := dmutex.Stamp{Clock: o.Attempt, Node: o.To}
				return o.Kind == dmutex.Reply && theirs.Less(m.Stamp())
			}), nil
		},
	}
	const entries = 100
	for n := 2; n <= 9; n++ {
		for _, tt := range []struct {
			algorithm dmutex.Algorithm
			messages  int
		}{
			{New, 3 * (n - 1) * entries},
			{textbook.Of(New), 3*(n-1)*entries - n*(n-1)/2},
			{OmitReplies, 2 * (n - 1) * entries},
		} {
			r, err := dmutextest.Simulate(dmutextest.SimConfig{
				Algorithm: tt.algorithm, Members: dmutextest.Nodes(n), Think: 0, Hold: 1, Entries: entries,
			})
			require.NoError(t, err)
			require.Equal(t, tt.messages, r.Messages, "%d nodes", n)
		}
	}
}

// A request that is withdrawn while nodes share sends its RELEASE at once: it costs what an entry costs.
func TestSharedMessages(t *testing.T) {
	const n = 4
	machines := make(map[dmutex.NodeID]dmutex.Machine)
	for _, id := range dmutextest.Nodes(n) {
		m, err := New(dmutex.Start{Self: id, Members: dmutextest.Nodes(n)})
		require.NoError(t, err)
		machines[id] = m
	}
	do := func(input func() ([]dmutex.Message, error)) (sent int) {
		out, err := input()
		require.NoError(t, err)
		for channel := slices.Clone(out); len(channel) > 0; sent++ {
			out, err := machines[channel[0].To].Handle(channel[0])
			require.NoError(t, err)
			channel = append(channel[1:], slices.Clone(out)...)
		}
		return sent
	}
	require.Equal(t, 2*(n-1), do(machines[1].(dmutex.Sharer).Share))
	require.Equal(t, 2*(n-1), do(machines[2].Request))
	require.Equal(t, n-1, do(machines[2].Cancel))
	require.False(t, machines[2].Pending())
	require.Equal(t, 2*(n-1), do(machines[2].(dmutex.Sharer).Share))
	require.Equal(t, dmutex.Held, machines[2].Phase())
}
