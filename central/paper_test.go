package central

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

// "2 messages for enter, 1 message for exit" (lecture notes), and none for
// the coordinator itself.
func TestMessages(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		r, err := dmutextest.Walk(dmutextest.Config{
			Algorithm: New,
			Members:   dmutextest.Nodes(n),
			Requests:  []int{requests},
			Network:   dmutextest.Network{Unordered: true},
		}, 1, 10)
		require.NoError(t, err)
		require.Equal(t, 3*requests*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)
		require.True(t, r.Dense)
	}
}

// The coordinator and the holder know who holds the lock.
func TestHolder(t *testing.T) {
	members := dmutextest.Nodes(3)
	holder := func(self, holder dmutex.NodeID) dmutex.NodeID {
		m, err := New(dmutex.Start{Self: self, Members: members, Holder: holder})
		require.NoError(t, err)
		return m.(dmutex.Coordinator).Holder()
	}
	for _, tt := range []struct{ self, held, want dmutex.NodeID }{
		{self: 1},
		{self: 1, held: 1, want: 1},
		{self: 1, held: 2, want: 2},
		{self: 2, held: 2, want: 2},
		{self: 3, held: 2},
	} {
		require.Equal(t, tt.want, holder(tt.self, tt.held), "at %d while %d holds", tt.self, tt.held)
	}
}

// The coordinator excludes all but the holder, and the holder excludes all.
func TestExcludes(t *testing.T) {
	machinetest.Excludes(t, New, dmutex.Start{}, [][]dmutex.NodeID{{2, 3}, nil, nil})
	machinetest.Excludes(t, New, dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
	machinetest.Excludes(t, At(3), dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, nil, {1, 2}})
	machinetest.Excludes(t, New, dmutex.Start{Holder: 1}, [][]dmutex.NodeID{{2, 3}, nil, nil})
	machinetest.Excludes(t, New, dmutex.Start{Holder: 2}, [][]dmutex.NodeID{{3}, {1, 3}, nil})
}

// "A crash of the coordinator or of the holder stops all nodes. So does a crash of
// a client with a request, withdrawn or not, once its turn comes. A crash of any
// other client stops nobody else."
func TestCrash(t *testing.T) {
	const holds, next, withdrew, idle, last = 2, 3, 4, 5, 6
	for _, tt := range []struct {
		down   dmutex.NodeID
		enters []dmutex.NodeID // the nodes that get the lock after node 2
	}{
		{dmutex.None, []dmutex.NodeID{next, last}},
		{1, nil},
		{holds, nil},
		{next, nil},
		{withdrew, []dmutex.NodeID{next}},
		{idle, []dmutex.NodeID{next, last}},
	} {
		members := dmutextest.Nodes(6)
		machines := make(map[dmutex.NodeID]dmutex.Machine)
		down := dmutex.None
		send := func(out []dmutex.Message, err error) {
			require.NoError(t, err)
			for wire := slices.Clone(out); len(wire) > 0; wire = wire[1:] {
				if wire[0].To != down {
					out, err := machines[wire[0].To].Handle(wire[0])
					require.NoError(t, err)
					wire = append(wire, out...)
				}
			}
		}
		for _, self := range members {
			m, err := New(dmutex.Start{Self: self, Members: members, Holder: holds})
			require.NoError(t, err)
			machines[self] = m
		}
		for _, id := range []dmutex.NodeID{next, withdrew, last} {
			send(machines[id].Request())
		}
		send(machines[withdrew].Cancel())

		down = tt.down
		var enters []dmutex.NodeID
		for holder := dmutex.NodeID(holds); holder != down && holder != dmutex.None; {
			send(machines[holder].Release())
			holder = dmutex.None
			for _, id := range []dmutex.NodeID{next, last} {
				if id != down && machines[id].Phase() == dmutex.Held {
					holder, enters = id, append(enters, id)
				}
			}
		}
		require.Equal(t, tt.enters, enters, "node %d is down", tt.down)
	}
}
