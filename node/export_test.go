package node

import (
	"context"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/transport"
)

// Views returns the text of the node's view machine.
func (n *Node) Views() string {
	n.views.mu.Lock()
	defer n.views.mu.Unlock()
	b, _ := n.views.machine.AppendText(nil)
	return string(b)
}

// Taken tells the node that a peer has met another process with its number, which was
// there first.
func (n *Node) Taken(by dmutex.NodeID) { handler{n}.Taken(by, 1) }

// StepWall acts as if the wall clock had been set forward.
func (n *Node) StepWall(d int64) { n.views.who.(*record).time.ahead.Add(-d) }

// Renew renews the lease as an answer of the store does that was asked for now, and calls
// pause between the look at the clock and the rest.
func (n *Node) Renew(pause func()) {
	v := &n.views
	for done := false; !done; {
		v.mu.Lock()
		now := v.now()
		l := v.who.(*record)
		m := l.machine
		m.Hint(now) // begins a load, now or when its pause is over
		if op, _ := m.Operation(); op == membership.Load {
			pause()
			value, _, _ := l.store.Load(context.Background())
			v.follow(now, m.Loaded(now, value))
			done = true
		}
		v.mu.Unlock()
	}
}

// LeaseLeft returns how long the lease is valid for the locks.
func (n *Node) LeaseLeft() time.Duration {
	return time.Duration(n.locks.Until() - n.views.who.(*record).time.now())
}

// Stranger tells the node that a frame came from a node that is not a peer.
func (n *Node) Stranger(id dmutex.NodeID) { handler{n}.Stranger(id) }

// Ended reports whether nothing more is granted.
func (n *Node) Ended() bool { return n.locks.Why() != nil }

// LinkClosed tells the node that its link was closed.
func (n *Node) LinkClosed() { handler{n}.Closed(transport.ErrClosed) }

// Hear tells the node that another leads an election.
func (n *Node) Hear(election string, leader dmutex.NodeID, epoch uint64) {
	n.terms.hear([]byte(election), term{leader, epoch})
}

// ReportPart brings a part of a peer's report in the present view. It holds a lock, and
// another part follows.
func (n *Node) ReportPart(from dmutex.NodeID, lock string) {
	n.views.mu.Lock()
	view := n.views.machine.View()
	n.views.mu.Unlock()
	holds := []membership.Hold{{Lock: lock, Fence: membership.FirstFence(view.Epoch)}, {Lock: strings.Repeat("x", 500)}}
	part, _ := appendMembership(nil, &membership.Message{Kind: membership.Report, View: view, Holds: holds}, 500)
	handler{n}.Message(from, 0, part)
}
