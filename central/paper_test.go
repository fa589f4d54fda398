package central

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// "2 messages for enter, 1 message for exit" (lecture notes), and none for
// the coordinator itself, unless it has a witness.
func TestMessages(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		for name, tt := range map[string]struct {
			algorithm dmutex.Algorithm
			pay       int // nodes whose entries cost messages
		}{"plain": {New, n - 1}, "with a witness": {Witnessed, n}} {
			if n == 1 {
				tt.pay = 0
			}
			r, err := dmutextest.Walk(dmutextest.Config{
				Algorithm: tt.algorithm,
				Members:   dmutextest.Nodes(n),
				Requests:  []int{requests},
				Network:   dmutextest.Network{Unordered: true},
			}, 1, 10)
			require.NoError(t, err)
			require.Equal(t, 3*requests*tt.pay, r.Least, "%s, %d nodes", name, n)
			require.Equal(t, r.Least, r.Greatest, "%s, %d nodes", name, n)
			require.True(t, r.Dense)
		}
	}
}

// A share costs 3 messages, as an entry alone does, and an entry alone one more for each node that
// shares the lock: that is told that somebody waits.
func TestSharedMessages(t *testing.T) {
	for readers := range 8 {
		members := dmutextest.Nodes(readers + 2)
		machines := make(map[dmutex.NodeID]dmutex.Machine)
		for _, id := range members {
			m, err := New(dmutex.Start{Self: id, Members: members, Home: 1})
			require.NoError(t, err)
			machines[id] = m
		}
		sent := 0
		do := func(input func() ([]dmutex.Message, error)) {
			var channel []dmutex.Message
			add := func(out []dmutex.Message, err error) {
				require.NoError(t, err)
				for _, m := range out {
					channel = append(channel, m.Clone())
				}
			}
			for add(input()); len(channel) > 0; sent++ {
				m := channel[0]
				channel = channel[1:]
				add(machines[m.To].Handle(m))
			}
		}
		sharing, writer := members[1:readers+1], machines[members[readers+1]]
		for _, id := range sharing {
			do(machines[id].(dmutex.Sharer).Share)
			require.Equal(t, dmutex.Held, machines[id].Phase())
		}
		do(writer.Request)
		for _, id := range sharing {
			require.Equal(t, dmutex.Waiting, writer.Phase())
			do(machines[id].Release)
		}
		require.Equal(t, dmutex.Held, writer.Phase())
		do(writer.Release)
		require.Equal(t, 3*readers+3+readers+min(readers, 1), sent, "%d nodes share", readers)
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

// The witness is the next member after the coordinator, round the end. It excludes the
// coordinator while it remembers none of its requests.
func TestWitness(t *testing.T) {
	machinetest.Excludes(t, Witnessed, dmutex.Start{}, [][]dmutex.NodeID{{2, 3}, {1}, nil})
	machinetest.Excludes(t, Witnessed, dmutex.Start{Home: 3}, [][]dmutex.NodeID{{3}, nil, {1, 2}})
	machinetest.Excludes(t, Witnessed, dmutex.Start{Holder: 1}, [][]dmutex.NodeID{{2, 3}, nil, nil})
	machinetest.Excludes(t, Witnessed, dmutex.Start{Holder: 2}, [][]dmutex.NodeID{{3}, {1, 3}, nil})
	machinetest.Excludes(t, Witnessed, dmutex.Start{Holder: 3}, [][]dmutex.NodeID{{2}, {1}, {1, 2}})
	machinetest.Excludes(t, Witnessed, dmutex.Start{}, [][]dmutex.NodeID{nil})

	one, two := machine2(t, 1), machine2(t, 2)
	excludes := func() bool { return two.(dmutex.Excluder).Excludes(1) }
	request := take(t, one.Request)
	require.Equal(t, "1->2 REQUEST attempt=1", request.String())
	require.Equal(t, dmutex.Waiting, one.Phase())
	require.True(t, excludes())
	reply := take(t, func() ([]dmutex.Message, error) { return two.Handle(request) })
	require.False(t, excludes(), "from the REPLY on")
	_, err := one.Handle(reply)
	require.NoError(t, err)
	require.Equal(t, dmutex.Held, one.Phase())
	release := take(t, one.Release)
	require.False(t, excludes())
	_, err = two.Handle(release)
	require.NoError(t, err)
	require.True(t, excludes())
}

// The coordinator waits for its witness when its turn has come, and not before.
func TestWitnessIsAwaited(t *testing.T) {
	one := machine2(t, 1)
	_, err := one.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1})
	require.NoError(t, err)
	_, err = one.Request()
	require.NoError(t, err)
	require.Empty(t, one.WaitsFor(nil), "2 has the lock, and 1 lends it")
	request := take(t, func() ([]dmutex.Message, error) {
		return one.Handle(dmutex.Message{Kind: dmutex.Release, From: 2, To: 1, Attempt: 1})
	})
	require.Equal(t, dmutex.Request, request.Kind)
	require.Equal(t, []dmutex.NodeID{2}, one.WaitsFor(nil))
	_, err = one.Cancel()
	require.NoError(t, err)
	require.Equal(t, []dmutex.NodeID{2}, one.WaitsFor(nil), "the withdrawn request, too")
}

// The coordinator's own shared hold is witnessed. Its witness then excludes only that the
// coordinator holds the lock alone.
func TestWitnessShared(t *testing.T) {
	one, two := machine2(t, 1), machine2(t, 2)
	knows := func(m dmutex.Machine) [2]bool {
		return [2]bool{m.(dmutex.Excluder).Excludes(1), m.(dmutex.Sharer).ExcludesAlone(1)}
	}
	require.Equal(t, [2]bool{true, true}, knows(two))
	share := take(t, one.(dmutex.Sharer).Share)
	require.Equal(t, "1->2 SHARE attempt=1", share.String())
	require.Equal(t, []dmutex.NodeID{2}, one.WaitsFor(nil))
	_, err := one.Handle(take(t, func() ([]dmutex.Message, error) { return two.Handle(share) }))
	require.NoError(t, err)
	require.Equal(t, dmutex.Held, one.Phase())
	require.Equal(t, [2]bool{false, true}, knows(two))
	_, err = two.Handle(take(t, one.Release))
	require.NoError(t, err)
	require.Equal(t, [2]bool{true, true}, knows(two))

	m, err := Witnessed(dmutex.Start{Self: 2, Members: dmutextest.Nodes(2), Sharers: []dmutex.NodeID{1}})
	require.NoError(t, err)
	require.Equal(t, [2]bool{false, true}, knows(m), "carried over")
}

// machine2 returns the machine of a member of the group 1 2 with a witness.
func machine2(t *testing.T, self dmutex.NodeID) dmutex.Machine {
	m, err := Witnessed(dmutex.Start{Self: self, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	return m
}

// take returns the one message that an input sends.
func take(t *testing.T, input func() ([]dmutex.Message, error)) dmutex.Message {
	out, err := input()
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
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
