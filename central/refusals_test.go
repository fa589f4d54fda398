package central_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
)

// TestRefusals sends what no correct peer sends. It is refused, and has changed
// nothing.
func TestRefusals(t *testing.T) {
	// Node 1 coordinates: it has granted request 4 of node 2, and node 3's request 5
	// waits. Node 2 holds, and node 3 waits.
	nodes := make(map[dmutex.NodeID]dmutextest.Machine)
	for _, id := range dmutextest.Nodes(3) {
		m, err := central.New(dmutex.Start{Self: id, Members: dmutextest.Nodes(3), Clock: uint64(id) + 1})
		require.NoError(t, err)
		nodes[id] = m.(dmutextest.Machine)
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

	for _, c := range []struct {
		kind     dmutex.Kind
		from, to dmutex.NodeID
		attempt  uint64
		why      string
	}{
		{dmutex.Request, 3, 2, 9, "this node is not the coordinator"},
		{dmutex.Release, 3, 2, 9, "this node is not the coordinator"},
		{dmutex.Request, 3, 1, 9, "the sender's last request still waits"},
		{dmutex.Release, 3, 1, 5, "the sender was not granted it"},
		{dmutex.Grant, 2, 3, 5, "the sender is not the coordinator"},
		{dmutex.Grant, 1, 3, 6, "it answers a request that was never made"},
		{dmutex.Reply, 1, 3, 5, "the central algorithm has no such message"},
		{dmutex.Token, 3, 1, 5, "the central algorithm has no such message"},
	} {
		m := nodes[c.to]
		before, err := m.AppendText(nil)
		require.NoError(t, err)
		out, err := m.Handle(dmutex.Message{Kind: c.kind, From: c.from, To: c.to, Attempt: c.attempt})
		require.ErrorIs(t, err, dmutex.ErrPeer, c.why)
		require.ErrorContains(t, err, c.why)
		require.Empty(t, out)
		after, err := m.AppendText(nil)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after))
	}
}
