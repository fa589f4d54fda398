package ricart

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// "The algorithm sends only 2*(N - 1) messages, where N is the number of nodes
// in the network, per critical section invocation." (Ricart and Agrawala,
// abstract.) See also TestExplore.
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
		require.Equal(t, n*requests*2*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)
		require.True(t, r.Dense)
	}
}

// An entry that waits for nodes that share costs an INQUIRE from each of them, and one that is withdrawn
// a RELEASE to each, so that a repeated REQUEST is not inquired about again.
func TestSharedMessages(t *testing.T) {
	for readers := range 8 {
		members := dmutextest.Nodes(readers + 2)
		machines := make(map[dmutex.NodeID]dmutex.Machine)
		for _, id := range members {
			m, err := New(dmutex.Start{Self: id, Members: members})
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
		sharing, writer := members[:readers], machines[members[readers]]
		n := 2 * (len(members) - 1)
		for _, id := range sharing {
			require.Equal(t, n, do(machines[id].(dmutex.Sharer).Share))
		}
		sent := do(writer.Request)
		if readers > 0 {
			require.Equal(t, readers, do(writer.Cancel), "a RELEASE to each")
			for _, id := range sharing {
				require.False(t, machines[id].(dmutex.Sharer).Wanted())
			}
			require.Equal(t, sent, do(writer.Request), "it is a new request")
		}
		for _, id := range sharing {
			require.Equal(t, dmutex.Waiting, writer.Phase())
			sent += do(machines[id].Release)
		}
		require.Equal(t, dmutex.Held, writer.Phase())
		require.Equal(t, n+readers, sent+do(writer.Release), "%d nodes share", readers)
	}
}

// "... unbounded sequence numbers are used to provide first-come first-served
// priority into the critical section." (Ricart and Agrawala, abstract.) In the
// order of the grants the requests' stamps rise: the explorer checks this if the
// machines show their stamps as fences.
//
// LESSONS L51.
func TestGrantsFollowStamps(t *testing.T) {
	r, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: machinetest.Probe[*machine]{Fence: func(m *machine) uint64 {
			return m.Stamp().Clock<<8 | uint64(m.Self())
		}}.Of(New),
		Members:  dmutextest.Nodes(3),
		Requests: []int{2},
		Network:  dmutextest.Network{Unordered: true},
	})
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.False(t, r.Dense, "stamps are no count of the grants")
}

// Under Carvalho, grants follow stamps only where requests conflict: a later grant may
// have a lower stamp.
func TestCarvalhoOrder(t *testing.T) {
	dmutextest.Refute(t, dmutextest.Config{
		Algorithm: carvalhoProbe{Fence: func(m *carvalho) uint64 {
			return m.Stamp().Clock<<8 | uint64(m.Self())
		}}.Of(Carvalho),
		Members:  dmutextest.Nodes(2),
		Requests: []int{3},
	}, dmutextest.ErrFenceOrder, "testdata/carvalho-order.txt")
}

// While nobody else asks, a node that has entered enters again without a
// message. Later it need ask only the nodes that have asked since.
func TestMessagesCarvalho(t *testing.T) {
	const n = 5
	machines := make([]dmutex.Machine, n)
	for i, self := range dmutextest.Nodes(n) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(n)})
		require.NoError(t, err)
		machines[i] = m
	}
	enter := func(node int) (messages int) {
		m := machines[node-1]
		wire, err := m.Request()
		require.NoError(t, err)
		for wire = slices.Clone(wire); len(wire) > 0; messages++ {
			out, err := machines[wire[0].To-1].Handle(wire[0])
			require.NoError(t, err)
			wire = append(wire[1:], out...)
		}
		require.Equal(t, dmutex.Held, m.Phase())
		_, err = m.Release()
		require.NoError(t, err)
		return messages
	}
	for _, tt := range []struct{ node, messages int }{
		{1, 2 * (n - 1)},
		{1, 0},
		{1, 0},
		{2, 2 * (n - 1)},
		{2, 0},
		{1, 2}, // asks 2
		{1, 0},
		{2, 2}, // asks 1
		{3, 2 * (n - 1)},
		{1, 2 * 2}, // asks 2 and 3
	} {
		require.Equal(t, tt.messages, enter(tt.node), tt)
	}
}

// "One node that stops answering stops those that must ask it and, through those
// who wait for it, everybody who must ask them."
func TestCarvalhoCrash(t *testing.T) {
	down := dmutex.None
	machines := make([]dmutex.Machine, 3)
	for i, self := range dmutextest.Nodes(3) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		machines[i] = m
	}
	one, two := machines[0], machines[1]
	send := func(out []dmutex.Message, err error) {
		require.NoError(t, err)
		for wire := slices.Clone(out); len(wire) > 0; wire = wire[1:] {
			if wire[0].To != down {
				out, err := machines[wire[0].To-1].Handle(wire[0])
				require.NoError(t, err)
				wire = append(wire, out...)
			}
		}
	}
	send(one.Request())
	send(one.Release())
	down = 3
	send(one.Request())
	require.Equal(t, dmutex.Held, one.Phase(), "it has all permissions")
	send(one.Release())
	send(two.Request())
	require.Equal(t, dmutex.Waiting, two.Phase(), "it must ask the dead node")
	send(one.Request())
	require.Equal(t, dmutex.Waiting, one.Phase(), "it must ask the one that waits")
}

// An idle node may forget its permissions, and then asks again.
func TestCarvalhoForget(t *testing.T) {
	for _, self := range dmutextest.Nodes(2) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(2)})
		require.NoError(t, err)
		_, _, ok := m.(*carvalho).Forget()
		require.True(t, ok)
	}
	m, err := Carvalho(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	c := m.(*carvalho)
	_, err = c.Request()
	require.NoError(t, err)
	_, err = c.Handle(dmutex.Message{Kind: dmutex.Reply, From: 2, To: 1, Attempt: 1})
	require.NoError(t, err)
	require.False(t, c.Keeps(), "it is not idle")
	_, err = c.Release()
	require.NoError(t, err)
	clock, known, ok := c.Forget()
	require.True(t, ok)
	require.True(t, c.Keeps())
	again, err := Carvalho(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: clock, Known: known})
	require.NoError(t, err)
	out, err := again.Request()
	require.NoError(t, err)
	require.Len(t, out, 1)
	_, err = c.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 2})
	require.NoError(t, err)
	require.False(t, c.Keeps())
}
