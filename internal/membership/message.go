package membership

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/protocol"
)

// A Member is one life of one member.
type Member struct {
	Node dmutex.NodeID
	Life uint64
}

// MaxMembers bounds the members of a group in both modes: signs of life grow with their
// square, and the bytes of a view change with their cube.
const MaxMembers = 64

// A View is the lives that go on together. The zero View is none.
type View struct {
	Epoch   uint64   // a later view has a higher epoch
	Members []Member // ascending by Node
}

// Has reports whether the life is a member of the view.
func (v View) Has(node dmutex.NodeID, life uint64) bool { return life != 0 && v.Life(node) == life }

// Life returns the node's life in the view, 0 if it has none.
func (v View) Life(node dmutex.NodeID) uint64 {
	for _, m := range v.Members {
		if m.Node == node {
			return m.Life
		}
	}
	return 0
}

// Nodes returns the members' numbers, ascending.
func (v View) Nodes() (nodes []dmutex.NodeID) {
	for _, m := range v.Members {
		nodes = append(nodes, m.Node)
	}
	return nodes
}

// Without returns the view without the lives that are members of another.
func (v View) Without(other View) View {
	v.Members = slices.DeleteFunc(slices.Clone(v.Members), func(m Member) bool { return other.Has(m.Node, m.Life) })
	return v
}

// A Hold is a lock that a life holds, and the fence of the grant.
type Hold struct {
	Lock   string
	Fence  uint64
	Shared bool // with other lives
}

// A Holding is what a member of a view has reported.
type Holding struct {
	Node  dmutex.NodeID
	Holds []Hold
	Past  *Past // in the lease mode
}

// Kind says what a [Message] is.
type Kind uint8

// The kinds of messages.
const (
	Prepare  Kind = iota + 1 // who takes part in this round?
	Promise                  // I do, and this is what I know
	Refuse                   // not I: I have promised another, or you are not your member's latest life
	Decide                   // VIEW: this is the view of this round; in the lease mode: I know the view of this epoch
	Report                   // I have installed it, and hold this
	Complete                 // all its members have reported to me
	Cleared                  // in the lease mode: the leases of those that were excluded have ended
	Part                     // in the lease mode: I leave, and hold nothing but this, which is lent to clients
	Moved                    // in the lease mode: a client holds this by me now, and not any more by a former member
	Kinds                    // one more than the last
)

// A Message is what one machine says to another. A field that its Kind does not use is zero.
type Message struct {
	Kind     Kind
	From, To dmutex.NodeID
	Round    uint64 // of PREPARE and PROMISE; of REFUSE the round that was promised
	Leaving  bool   // of PREPARE and PROMISE: the sender is leaving
	Life     uint64 // of REFUSE: a later life of the receiver's number; else 0

	Installed View              // of PROMISE: what the sender has installed
	Completed View              // of PROMISE: the last view that was complete at the sender
	Speaks    protocol.Versions // of PROMISE: what the sender speaks
	View      View              // of VIEW, REPORT and COMPLETE; of PREPARE in doubt: the later view; VIEW has no members in the lease mode

	// Of CLEARED, and of REPORT in the lease mode: all lives that were excluded in this
	// epoch or a lower one have lost what they held.
	Cleared uint64

	Holds []Hold // of REPORT
	Past  *Past  // of REPORT in the lease mode: nil if the sender has not acted since it joined

	Lent   []Loan        // of PART, and of MOVED: one
	Former dmutex.NodeID // of MOVED
}

// Shares reports whether a REPORT tells of locks that are shared.
func (msg *Message) Shares() bool {
	return slices.ContainsFunc(msg.Holds, func(h Hold) bool { return h.Shared }) ||
		msg.Past != nil && slices.ContainsFunc(msg.Past.Words, func(w Word) bool { return len(w.Alone) > 0 })
}
