package dmutex_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
)

func TestStampOrder(t *testing.T) {
	for _, tt := range []struct {
		s, t dmutex.Stamp
		want int
	}{
		{dmutex.Stamp{Clock: 1, Node: 1}, dmutex.Stamp{Clock: 1, Node: 1}, 0},
		{dmutex.Stamp{Clock: 1, Node: 9}, dmutex.Stamp{Clock: 2, Node: 1}, -1}, // the time decides
		{dmutex.Stamp{Clock: 2, Node: 1}, dmutex.Stamp{Clock: 1, Node: 9}, 1},
		{dmutex.Stamp{Clock: 1, Node: 1}, dmutex.Stamp{Clock: 1, Node: 2}, -1}, // the node breaks ties
		{dmutex.Stamp{Clock: 1, Node: 2}, dmutex.Stamp{Clock: 1, Node: 1}, 1},
	} {
		require.Equal(t, tt.want, tt.s.Compare(tt.t), "%v %v", tt.s, tt.t)
		require.Equal(t, tt.want < 0, tt.s.Less(tt.t), "%v %v", tt.s, tt.t)
	}
}

func TestStampString(t *testing.T) {
	s := dmutex.Stamp{Clock: 7, Node: 12}
	require.Equal(t, "12@7", s.String())
	require.Equal(t, "> 12@7", string(s.AppendTo([]byte("> "))))
}

func TestKindString(t *testing.T) {
	for kind, want := range []string{
		"KIND0", "REQUEST", "REPLY", "GRANT", "RELEASE", "FAILED", "INQUIRE", "YIELD", "TOKEN", "SHARE",
	} {
		require.Equal(t, want, dmutex.Kind(kind).String())
	}
	require.Equal(t, 10, dmutex.Kinds, "a new kind has a name too")
	require.Equal(t, "KIND10", dmutex.Kind(10).String())
}

func TestPhaseString(t *testing.T) {
	require.Equal(t, "idle", dmutex.Idle.String())
	require.Equal(t, "waiting", dmutex.Waiting.String())
	require.Equal(t, "held", dmutex.Held.String())
	require.Equal(t, "phase 3", dmutex.Phase(3).String())
}

func TestMessageString(t *testing.T) {
	for _, tt := range []struct {
		message dmutex.Message
		want    string
	}{
		{dmutex.Message{}, "0->0 KIND0"},
		{dmutex.Message{Kind: dmutex.Request, From: 1, To: 2, Attempt: 5}, "1->2 REQUEST attempt=5"},
		{dmutex.Message{Kind: dmutex.Reply, From: 12, To: 3, Attempt: 5, Clock: 6, Fence: 7}, "12->3 REPLY attempt=5 clock=6 fence=7"},
		{
			dmutex.Message{Kind: dmutex.Token, From: 1, To: 2, Fence: 1, Numbers: []uint64{0, 4}, Nodes: []dmutex.NodeID{3}},
			"1->2 TOKEN fence=1 numbers=0,4 nodes=3",
		},
	} {
		require.Equal(t, tt.want, tt.message.String())
		b, err := tt.message.AppendText([]byte("> "))
		require.NoError(t, err)
		require.Equal(t, "> "+tt.want, string(b))
	}
}

func TestMessageClone(t *testing.T) {
	m := dmutex.Message{Kind: dmutex.Token, Numbers: []uint64{1, 2}, Nodes: []dmutex.NodeID{3}}
	c := m.Clone()
	require.Equal(t, m, c)
	m.Numbers[0], m.Nodes[0] = 9, 9
	require.Equal(t, []uint64{1, 2}, c.Numbers)
	require.Equal(t, []dmutex.NodeID{3}, c.Nodes)
}

func TestMisuse(t *testing.T) {
	err := dmutex.Misuse("the reason")
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.NotErrorIs(t, err, dmutex.ErrPeer)
	require.EqualError(t, err, "dmutex: misuse: the reason")
}

// Each message is delivered by hand.
func Example_byHand() {
	members := []dmutex.NodeID{1, 2}
	one, _ := ricart.New(dmutex.Start{Self: 1, Members: members})
	two, _ := ricart.New(dmutex.Start{Self: 2, Members: members})

	requests, _ := one.Request()          // node 1 wants to enter
	replies, _ := two.Handle(requests[0]) // node 2 gets its REQUEST
	one.Handle(replies[0])                // node 1 gets the REPLY
	fmt.Println(one.Phase(), one.Fence()) // held 1
	// Output: held 1
}

// A node drives its machine: it sends the messages that a call returns, and handles
// those that arrive. Here the network is a queue in memory.
func Example() {
	members := []dmutex.NodeID{1, 2, 3}
	machines := make(map[dmutex.NodeID]dmutex.Machine)
	for _, self := range members {
		m, err := ricart.New(dmutex.Start{Self: self, Members: members})
		if err != nil {
			fmt.Println(err) // the Start is invalid
			return
		}
		machines[self] = m
	}

	var wire []dmutex.Message
	send := func(out []dmutex.Message, err error) {
		if err != nil {
			fmt.Println(err) // nothing has changed
		}
		for _, m := range out {
			wire = append(wire, m.Clone()) // the next call overwrites it
		}
	}
	deliver := func() {
		m := wire[0]
		wire = wire[1:]
		fmt.Println(m)
		send(machines[m.To].Handle(m))
	}

	two := machines[2]
	send(two.Request())
	for two.Phase() != dmutex.Held { // a grant is a phase, not an event
		deliver()
	}
	fmt.Println("node 2 is in the critical section, by fence", two.Fence())
	send(two.Release())
	fmt.Println("node 2 is", two.Phase())
	// Output:
	// 2->1 REQUEST attempt=1
	// 2->3 REQUEST attempt=1
	// 1->2 REPLY attempt=1
	// 3->2 REPLY attempt=1
	// node 2 is in the critical section, by fence 1
	// node 2 is idle
}
