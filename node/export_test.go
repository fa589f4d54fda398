package node

import (
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// Taken tells the node that a peer has met an earlier process with the same number.
func (n *Node) Taken(by dmutex.NodeID) { n.group.Taken(by, 1) }

// StepWall acts as if the wall clock had been set forward.
func (n *Node) StepWall(d int64) { n.group.StepWall(time.Duration(d)) }

// OnBreath makes a long walk over the locks call f now and then.
func (n *Node) OnBreath(f func()) { n.locks.OnBreath(f) }

// Stranger tells the node that a frame came from a node that is not a peer.
func (n *Node) Stranger(id dmutex.NodeID) { n.group.Stranger(id) }

// Ended reports whether the node grants nothing any more.
func (n *Node) Ended() bool { return n.locks.Why() != nil }

// LinkClosed tells the node that its link was closed.
func (n *Node) LinkClosed() { n.group.Closed(transport.ErrClosed) }

// Hear tells the node that another leads an election.
func (n *Node) Hear(election string, leader dmutex.NodeID, epoch uint64) {
	n.terms.learn(election, term{leader: leader, epoch: epoch}, nil)
}
