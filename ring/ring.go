// Package ring is the token ring: a token goes around, and who has it may
// enter.
//
// Le Lann, "Distributed Systems: Towards a Formal Approach", IFIP Congress,
// 1977, for the token that goes around for ever ([Circulate]). A ring whose
// token parks ([New], [Order]) is a small step from it that several have taken.
//
// # Theory of operation
//
// The nodes form a ring: each sends to its successor only. There is one token.
// A node that has it enters at will, and passes it on when it leaves.
//
// While nobody asks, a parked token rests where it was last used. A node that
// has not the token sends WANT, with its own name, to its successor. WANT goes
// around until it meets the token, which notes the name among those who want
// it. A token that is wanted goes around too, and at each node forgets that
// node's name; when no name is left, it rests there. On the wire WANT is a
// REQUEST, with the name in Nodes, and TOKEN has the wanters in Nodes.
//
// Mutual exclusion. There is one token: a node that passes it no longer has it.
//
// Progress. WANT travels the way of the token and cannot overtake it. Either it
// meets the token; or the token, going around for others, comes to the node
// behind it, and then WANT comes home ahead of the token and ends there. The
// token loses a name only at the node of that name, and goes on until it has
// lost all: once it has a node's name, every other node enters at most once
// before that one.
//
// Order and count. The channels must keep the order of messages (a WANT that
// overtook the token could go around without meeting it), and must not repeat
// them. The cost is none for the node where the token rests, and exactly N for
// an isolated request: a WANT or the TOKEN crosses each edge of the ring. In
// any run it is at most N an entry, and 2 when everybody always wants the
// token. The delay is N hops when nobody else is interested, and 1 to N-1 hops
// from a release to the next entry, or up to N if its WANT was sent just before
// the release: the two then share the way around. One node that stops breaks the
// ring.
//
// Departures: messages carry the highest fence known; a cancelled request runs
// its course as [dmutex.Site] tells.
package ring

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// A seat is one node's place in the ring, and the token if it is there.
type seat struct {
	site  dmutex.Site
	token bool
}

// A place is where a node is in the ring. It never changes, and all machines of
// a node share it.
type place struct {
	before dmutex.NodeID   // the node from which the token comes; this node itself if it is alone
	after  dmutex.NodeID   // the node to which the token goes
	first  bool            // the token of a fresh group begins here
	order  []dmutex.NodeID // of all nodes
}

// newSeat places a node in a ring of the given order.
func newSeat(s dmutex.Start, order []dmutex.NodeID) (seat, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return seat{}, err
	}
	if !slices.Equal(ascending(order), ascending(s.Members)) {
		return seat{}, dmutex.Misuse("the order of the ring must name each of Start.Members once")
	}
	site.Common(func() any {
		n, i := len(order), slices.Index(order, s.Self)
		return &place{order[(i+n-1)%n], order[(i+1)%n], i == 0, slices.Clone(order)}
	})
	t := seat{site: site}
	t.token = s.Holder == s.Self || s.Holder == dmutex.None && t.place().first
	return t, nil
}

func (t *seat) place() *place { return t.site.Common(nil).(*place) }

func ascending(nodes []dmutex.NodeID) []dmutex.NodeID {
	return slices.Sorted(slices.Values(nodes))
}

// Cancel implements [dmutex.Machine].
func (t *seat) Cancel() ([]dmutex.Message, error) {
	return nil, t.site.Cancel()
}

// WaitsFor implements [dmutex.Machine]: all peers, for nobody but its holder knows
// where the token is.
func (t *seat) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if t.site.Pending() {
		b = append(b, t.site.Peers()...)
	}
	return b
}

// Phase implements [dmutex.Machine].
func (t *seat) Phase() dmutex.Phase { return t.site.Phase() }

// Pending implements [dmutex.Machine].
func (t *seat) Pending() bool { return t.site.Pending() }

// Fence implements [dmutex.Machine].
func (t *seat) Fence() uint64 { return t.site.Fence() }

// rests reports whether the token is here and not in use.
func (t *seat) rests() bool { return t.token && t.site.Phase() == dmutex.Idle }

// check refuses what cannot come along the ring.
func (t *seat) check(msg dmutex.Message) error {
	_, err := t.site.Check(msg)
	switch {
	case err != nil:
		return err
	case msg.From != t.place().before:
		return t.site.Refuse(msg, "the sender is not the predecessor in the ring")
	case msg.Kind == dmutex.Token && t.token:
		return t.site.Refuse(msg, "the token is here: there cannot be a second one")
	}
	return nil
}

// take takes the token, and enters if this node waits. For a withdrawn request
// the critical section is empty.
func (t *seat) take(msg dmutex.Message) {
	t.site.Witness(0, msg.Fence)
	t.token = true
	if t.site.Pending() {
		t.site.Enter()
	}
}

// pass sends the token on.
func (t *seat) pass() *dmutex.Message {
	t.token = false
	return t.site.Send(dmutex.Token, t.place().after, 0)
}

func (t *seat) appendText(b []byte) []byte {
	b, _ = t.site.AppendText(append(b, "ring "...))
	b = append(b, " after="...)
	b = strconv.AppendUint(b, uint64(t.place().after), 10)
	if t.token {
		b = append(b, " token"...)
	}
	return b
}

func (t *seat) clone() seat {
	c := *t
	c.site = t.site.Clone()
	return c
}
