package node

import (
	"reflect"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/transport"
)

// HeldSize is the size of a handle.
var HeldSize = reflect.TypeFor[locks.Held]().Size()

// Taken tells the node that a peer has met an earlier process with the same number.
func (n *Node) Taken(by dmutex.NodeID) { n.group.Taken(by, 1) }

// StepWall acts as if the wall clock had been set forward.
func (n *Node) StepWall(d int64) { n.group.StepWall(time.Duration(d)) }

// LeaseLeft returns how long the node may still hold locks without a renewal.
func (n *Node) LeaseLeft() time.Duration { return n.Status().Lease.Remains }

// Stranger tells the node that a frame came from a node that is not a peer.
func (n *Node) Stranger(id dmutex.NodeID) { n.group.Stranger(id) }

// Ended reports whether the node grants nothing any more.
func (n *Node) Ended() bool { return n.locks.Why() != nil }

// LinkClosed tells the node that its link was closed.
func (n *Node) LinkClosed() { n.group.Closed(transport.ErrClosed) }

// Hear tells the node that another leads an election.
func (n *Node) Hear(election string, leader dmutex.NodeID, epoch uint64) {
	n.terms.learn(election, term{leader, epoch}, nil)
}

// ReportPart delivers the first part of a peer's report in the current view. The part holds a lock,
// and announces another part.
func (n *Node) ReportPart(from dmutex.NodeID, lock string) {
	view := n.group.Status().Lives
	holds := []membership.Hold{{Lock: lock, Fence: epochs.First(view.Epoch)}, {Lock: strings.Repeat("x", 500)}}
	m := &membership.Message{Kind: membership.Report, View: view, Holds: holds}
	n.group.Message(from, 0, group.Parts(m, 500)[0])
}
