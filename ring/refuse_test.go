package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

func TestRefusedConfiguration(t *testing.T) {
	start := dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)}
	for name, algorithm := range map[string]dmutex.Algorithm{
		"order is empty":            Order(),
		"order without a member":    Order(1, 2),
		"order with a stranger":     Order(1, 2, 4),
		"order with a node twice":   Order(1, 2, 2),
		"order too long":            Order(1, 2, 3, 3),
		"order, circulating":        Circulate(1, 1, 2),
		"no pace":                   Circulate(0),
		"negative pace":             Circulate(-1),
		"no pace, and an odd order": Circulate(0, 1),
	} {
		_, err := algorithm(start)
		require.ErrorIs(t, err, dmutex.ErrMisuse, name)
	}
}

// A message that cannot come along the ring is refused, and changes nothing.
func TestRefuses(t *testing.T) {
	token := func(nodes ...dmutex.NodeID) dmutex.Message {
		return dmutex.Message{Kind: dmutex.Token, From: 1, Nodes: nodes}
	}
	want := func(nodes ...dmutex.NodeID) dmutex.Message {
		return dmutex.Message{Kind: dmutex.Request, From: 1, Attempt: 9, Nodes: nodes}
	}
	other := func(m dmutex.Message, from dmutex.NodeID) dmutex.Message {
		m.From = from
		return m
	}
	for _, tt := range []struct {
		algorithm dmutex.Algorithm
		holder    dmutex.NodeID
		msg       dmutex.Message
		why       string
	}{
		{algorithm: New, holder: 1, msg: other(token(3), 3), why: "predecessor"},
		{algorithm: New, holder: 1, msg: other(want(3), 3), why: "predecessor"},
		{algorithm: New, holder: 2, msg: token(3), why: "second"},
		{algorithm: New, holder: 1, msg: token(), why: "it names no node that wants the token"},
		{algorithm: New, holder: 1, msg: token(4), why: "stranger"},
		{algorithm: New, holder: 1, msg: token(0), why: "stranger"},
		{algorithm: New, holder: 1, msg: token(3, 2), why: "ascending"},
		{algorithm: New, holder: 1, msg: token(2, 2), why: "ascending"},
		{algorithm: New, holder: 1, msg: token(1, 2), why: "still wants"},
		{algorithm: New, holder: 1, msg: want(), why: "it names no node that wants the token"},
		{algorithm: New, holder: 1, msg: want(1, 3), why: "one node"},
		{algorithm: New, holder: 1, msg: want(2), why: "never made"},
		{algorithm: New, holder: 1, msg: dmutex.Message{Kind: dmutex.Reply, From: 1, Attempt: 1}, why: "no such message"},
		{algorithm: Circulate(1), holder: 2, msg: token(), why: "second"},
		{algorithm: Circulate(1), holder: 1, msg: token(3), why: "no list"},
		{algorithm: Circulate(1), holder: 1, msg: dmutex.Message{Kind: dmutex.Token, From: 1, Numbers: []uint64{1}}, why: "no list"},
		{algorithm: New, holder: 1, msg: dmutex.Message{Kind: dmutex.Token, From: 1, Numbers: []uint64{1}, Nodes: []dmutex.NodeID{2}}, why: "numbers"},
		{algorithm: Circulate(1), holder: 1, msg: want(1), why: "only the token"},
		{algorithm: Circulate(1), holder: 1, msg: other(token(), 3), why: "predecessor"},
	} {
		m, err := tt.algorithm(dmutex.Start{Self: 2, Members: dmutextest.Nodes(3), Holder: tt.holder})
		require.NoError(t, err)
		before, _ := m.AppendText(nil)
		tt.msg.To = 2
		_, err = m.Handle(tt.msg)
		require.ErrorIs(t, err, dmutex.ErrPeer, tt.why)
		require.ErrorContains(t, err, tt.why)
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after))
	}
}

// A node that wants the token is on the list once.
func TestNotedOnce(t *testing.T) {
	m := newGroup(t, New, 3, 1).machines[0].(*parked)
	for range 2 {
		for _, node := range []dmutex.NodeID{3, 2} {
			_, err := m.Handle(dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 2, Nodes: []dmutex.NodeID{node}})
			require.NoError(t, err)
		}
	}
	require.Equal(t, []dmutex.NodeID{2, 3}, m.wanters)
}
