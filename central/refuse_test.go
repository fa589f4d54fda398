package central

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A RELEASE of a request that still waits is refused: it was not granted.
func TestReleaseOfWaiting(t *testing.T) {
	m, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3), Holder: 2})
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 1})
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Release, From: 3, To: 1, Attempt: 1})
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.ErrorContains(t, err, "was not granted")
}

// While the given coordinator is away, the lock's home takes its place.
func TestCoordinatorIsAway(t *testing.T) {
	for _, tt := range []struct {
		members []dmutex.NodeID
		home    dmutex.NodeID
		want    dmutex.NodeID
	}{
		{[]dmutex.NodeID{1, 2, 4}, 1, 4},
		{[]dmutex.NodeID{2, 4}, dmutex.None, 4},
		{[]dmutex.NodeID{3, 2, 1}, dmutex.None, 1},
		{[]dmutex.NodeID{3, 2, 1}, 3, 3},
	} {
		m, err := At(4)(dmutex.Start{Self: 2, Members: tt.members, Home: tt.home})
		require.NoError(t, err)
		out, err := m.Request()
		require.NoError(t, err)
		require.Equal(t, tt.want, out[0].To, "%+v", tt)
	}
}

// A message that no correct peer sends is refused, and one that is repeated or late is
// ignored. Neither changes anything.
func TestRefuses(t *testing.T) {
	// Node 1 coordinates: it has granted request 4 of node 2, and node 3's request 5
	// waits. Node 2 holds, and node 3 waits.
	nodes := make(map[dmutex.NodeID]dmutex.Machine)
	for _, id := range dmutextest.Nodes(3) {
		m, err := New(dmutex.Start{Self: id, Members: dmutextest.Nodes(3), Clock: uint64(id) + 1})
		require.NoError(t, err)
		nodes[id] = m
	}
	handle := func(list []dmutex.Message, err error) {
		require.NoError(t, err)
		for _, msg := range append([]dmutex.Message(nil), list...) {
			out, err := nodes[msg.To].Handle(msg)
			require.NoError(t, err)
			for _, answer := range append([]dmutex.Message(nil), out...) {
				_, err := nodes[answer.To].Handle(answer)
				require.NoError(t, err)
			}
		}
	}
	handle(nodes[2].Request())
	handle(nodes[3].Request())
	require.Equal(t, dmutex.Held, nodes[2].Phase())
	require.Equal(t, dmutex.Waiting, nodes[3].Phase())

	refuse(t, nodes, []refusal{
		{kind: dmutex.Request, from: 3, to: 2, attempt: 9, why: "this node is not the coordinator"},
		{kind: dmutex.Release, from: 3, to: 2, attempt: 9, why: "this node is not the coordinator"},
		{kind: dmutex.Request, from: 3, to: 1, attempt: 9, why: "the sender's last request still waits"},
		{kind: dmutex.Release, from: 3, to: 1, attempt: 5, why: "the sender was not granted it"},
		{kind: dmutex.Grant, from: 2, to: 3, attempt: 5, why: "the sender is not the coordinator"},
		{kind: dmutex.Grant, from: 1, to: 3, attempt: 6, why: "it answers a request that was never made"},
		{kind: dmutex.Reply, from: 1, to: 3, attempt: 5, why: "the sender is not this node's witness"},
		{kind: dmutex.Token, from: 3, to: 1, attempt: 5, why: "the central algorithm has no such message"},
		{kind: dmutex.Request, from: 2, to: 1, attempt: 4},
		{kind: dmutex.Request, from: 2, to: 1, attempt: 3},
		{kind: dmutex.Request, from: 3, to: 1, attempt: 5},
		{kind: dmutex.Release, from: 2, to: 1, attempt: 3},
		{kind: dmutex.Release, from: 3, to: 1, attempt: 4},
		{kind: dmutex.Grant, from: 1, to: 2, attempt: 4},
		{kind: dmutex.Grant, from: 1, to: 3, attempt: 4},
	})
}

// The messages between the coordinator and its witness.
func TestRefusesWitnessed(t *testing.T) {
	// Node 1 coordinates, and its witness 2 remembers its request 5. Node 3 coordinates nothing.
	nodes := make(map[dmutex.NodeID]dmutex.Machine)
	for _, id := range dmutextest.Nodes(3) {
		m, err := Witnessed(dmutex.Start{Self: id, Members: dmutextest.Nodes(3), Clock: 4})
		require.NoError(t, err)
		nodes[id] = m
	}
	request := take(t, nodes[1].Request)
	_, err := nodes[2].Handle(request)
	require.NoError(t, err)
	refuse(t, nodes, []refusal{
		{kind: dmutex.Request, from: 3, to: 2, attempt: 9, why: "this node is not the coordinator"},
		{kind: dmutex.Release, from: 3, to: 2, attempt: 5, why: "this node is not the coordinator"},
		{kind: dmutex.Request, from: 1, to: 3, attempt: 9, why: "this node is not the coordinator"},
		{kind: dmutex.Reply, from: 3, to: 1, attempt: 5, why: "the sender is not this node's witness"},
		{kind: dmutex.Reply, from: 2, to: 3, attempt: 4, why: "the sender is not this node's witness"},
		{kind: dmutex.Reply, from: 2, to: 1, attempt: 6, why: "it answers a request that was never made"},
		{kind: dmutex.Request, from: 1, to: 2, attempt: 5},
		{kind: dmutex.Request, from: 1, to: 2, attempt: 4},
		{kind: dmutex.Release, from: 1, to: 2, attempt: 4},
		{kind: dmutex.Release, from: 1, to: 2, attempt: 6},
		{kind: dmutex.Reply, from: 2, to: 1, attempt: 4},
	})

	// Node 3 holds, and the request of node 1 waits: its witness was not asked.
	m, err := Witnessed(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3), Holder: 3, Clock: 4})
	require.NoError(t, err)
	_, err = m.Request()
	require.NoError(t, err)
	refuse(t, map[dmutex.NodeID]dmutex.Machine{1: m}, []refusal{
		{kind: dmutex.Reply, from: 2, to: 1, attempt: 5, why: "the witness was not asked"},
		{kind: dmutex.Reply, from: 2, to: 1, attempt: 4},
	})
}

// Node 1 coordinates, node 2 shares the lock, and node 3 waits to share it behind node 4.
func TestRefusesShared(t *testing.T) {
	nodes := make(map[dmutex.NodeID]dmutex.Machine)
	for _, id := range dmutextest.Nodes(4) {
		m, err := New(dmutex.Start{Self: id, Members: dmutextest.Nodes(4), Clock: 4})
		require.NoError(t, err)
		nodes[id] = m
	}
	deliver := func(out []dmutex.Message, err error) {
		require.NoError(t, err)
		for wire := slices.Clone(out); len(wire) > 0; wire = wire[1:] {
			out, err := nodes[wire[0].To].Handle(wire[0])
			require.NoError(t, err)
			wire = append(wire, slices.Clone(out)...)
		}
	}
	deliver(nodes[2].(dmutex.Sharer).Share())
	deliver(nodes[4].Request())
	deliver(nodes[3].(dmutex.Sharer).Share())
	require.Equal(t, []dmutex.NodeID{2}, nodes[1].(dmutex.Sharer).Sharers(nil))
	require.Equal(t, []dmutex.NodeID{2}, nodes[2].(dmutex.Sharer).Sharers(nil))
	require.Equal(t, dmutex.None, nodes[1].(dmutex.Coordinator).Holder())
	require.Equal(t, dmutex.None, nodes[2].(dmutex.Coordinator).Holder())
	refuse(t, nodes, []refusal{
		{kind: dmutex.Share, from: 3, to: 2, attempt: 9, why: "this node is not the coordinator"},
		{kind: dmutex.Share, from: 3, to: 1, attempt: 9, why: "the sender's last request still waits"},
		{kind: dmutex.Release, from: 3, to: 1, attempt: 5, why: "the sender was not granted it"},
		{kind: dmutex.Inquire, from: 3, to: 2, attempt: 5, why: "the sender is not the coordinator"},
		{kind: dmutex.Inquire, from: 1, to: 4, attempt: 5, clock: 1, why: "the request does not share, so there is only one"},
		{kind: dmutex.Inquire, from: 1, to: 4, attempt: 5},
		{kind: dmutex.Share, from: 2, to: 1, attempt: 5},
		{kind: dmutex.Share, from: 3, to: 1, attempt: 5},
		{kind: dmutex.Release, from: 2, to: 1, attempt: 4},
		{kind: dmutex.Inquire, from: 1, to: 2, attempt: 5},
		{kind: dmutex.Inquire, from: 1, to: 3, attempt: 4},
	})
}

// An INQUIRE that arrives after the release is about a former hold.
func TestInquireOfFormer(t *testing.T) {
	m, err := New(dmutex.Start{Self: 2, Members: dmutextest.Nodes(2), Sharers: []dmutex.NodeID{2}})
	require.NoError(t, err)
	_, err = m.Release()
	require.NoError(t, err)
	_, err = m.(dmutex.Sharer).Share()
	require.NoError(t, err)
	refuse(t, map[dmutex.NodeID]dmutex.Machine{2: m}, []refusal{{kind: dmutex.Inquire, from: 1, to: 2, attempt: 1}})
}

// A refusal is a message that is refused or ignored.
type refusal struct {
	kind     dmutex.Kind
	from, to dmutex.NodeID
	attempt  uint64
	clock    uint64
	why      string // "" if it is ignored
}

// refuse checks that no machine changes.
func refuse(t *testing.T, nodes map[dmutex.NodeID]dmutex.Machine, all []refusal) {
	t.Helper()
	for _, c := range all {
		m := nodes[c.to]
		before, err := m.AppendText(nil)
		require.NoError(t, err)
		out, err := m.Handle(dmutex.Message{Kind: c.kind, From: c.from, To: c.to, Attempt: c.attempt, Clock: c.clock})
		if c.why == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, dmutex.ErrPeer, c.why)
			require.ErrorContains(t, err, c.why)
		}
		require.Empty(t, out)
		after, err := m.AppendText(nil)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	}
}
