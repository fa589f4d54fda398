// Package ring is the token ring: a token goes around, and the node that has it
// may enter.
//
// Le Lann, "Distributed Systems: Towards a Formal Approach", IFIP Congress,
// 1977, for the token that goes around forever ([Circulate]). A ring whose
// token parks ([New], [Order]) is a common variation.
//
// # Theory of operation
//
// The nodes form a ring: each sends to its successor only. There is one token.
// A node that has it may enter at any time, and passes it on when it leaves.
//
// While no node asks, a parked token rests where it was last used. A node without the token
// that wants it sends WANT, with its own name, to its successor. WANT goes around until it
// meets the token, which adds the name to its wanters. A token with wanters goes around
// too. At each node it drops that node's name, and when none is left, it rests. On the wire
// WANT is a REQUEST, with the name in Nodes, and TOKEN has the wanters in Nodes.
//
// Mutual exclusion. There is one token: a node that passes it no longer has it.
//
// Progress. WANT travels the way of the token and cannot overtake it. Either it meets the
// token; or the token, going around for others, comes to the node behind it, and then WANT
// comes home ahead of the token and ends there. The token loses a name only at the node of
// that name, and goes on until it has lost all: once it has a node's name, every other node
// enters at most once before that one.
//
// Order and count. The channels must keep the order of messages (a WANT that overtook the
// token could go around without meeting it), and must not repeat them. The cost is none for
// the node where the token rests, and exactly N for an isolated request: a WANT or the
// TOKEN crosses each edge of the ring. In any run it is at most N an entry, and 2 when all
// nodes always want the token. The delay is N hops when no other node is interested. From a
// release to the next entry it is 1 to N-1 hops, or up to N if its WANT was sent just
// before the release: the two then share the way around. A node that stops breaks the ring.
//
// Departures: fences and canceled requests as [site.Site] describes.
package ring

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// A seat is one node's place in the ring, with the token if it is there, in both rings.
type seat struct {
	site.Machine
	before dmutex.NodeID   // the node from which the token comes; this node itself if it is alone
	after  dmutex.NodeID   // the node to which the token goes
	first  bool            // the token of a fresh group begins here
	order  []dmutex.NodeID // of all nodes; never changes
	token  bool
}

// newSeat places a node in a ring of the given order, whose first node is the lock's home;
// nil is the ascending one, which has the home of the Start.
func newSeat(s dmutex.Start, order []dmutex.NodeID) (seat, error) {
	own, err := site.New(s)
	if err != nil {
		return seat{}, err
	}
	home := dmutex.None
	if len(order) > 0 {
		home = order[0]
	} else if order == nil {
		order = own.Members()
	}
	if !slices.Equal(slices.Sorted(slices.Values(order)), own.Members()) {
		return seat{}, dmutex.Misuse("the order of the ring must name each of Start.Members once")
	}
	n, i := len(order), slices.Index(order, s.Self)
	first := site.Home(s, home) == s.Self
	token := s.Holder == s.Self || s.Holder == dmutex.None && first
	return seat{site.Machine{Site: own}, order[(i+n-1)%n], order[(i+1)%n], first, order, token}, nil
}

func (t *seat) rests() bool { return t.token && t.Phase() == dmutex.Idle }

// take takes the token, and enters if this node waits.
func (t *seat) take(msg dmutex.Message) {
	t.Witness(0, msg.Fence)
	t.token = true
	if t.Pending() {
		t.Enter()
	}
}

func (t *seat) pass() *dmutex.Message {
	t.token = false
	return t.Send(dmutex.Token, t.after, 0)
}
