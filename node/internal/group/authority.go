package group

import (
	"context"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// An authority says who is a member: a view machine with its driver, which is strict or record. It is guarded
// by the mutex of the Group.
type authority interface {
	// now returns the time of an input, and tells the machine the wall clock. What a lease has not
	// covered until now ends first, as an input may extend the lease.
	now() int64

	// The inputs of the machine, see there. A driver adds to some.
	Tick(now int64) membership.Output
	Deadline() int64 // when to Tick
	Met(now int64, peer dmutex.NodeID, life uint64) membership.Output
	Lost(now int64, peer dmutex.NodeID) membership.Output
	Handle(now int64, m membership.Message) (membership.Output, error)
	Report(now int64, holds []membership.Hold, word *membership.Word) membership.Output
	Trouble(now int64, epoch uint64) membership.Output

	// event handles the events that differ between the modes: those of the machine, and those
	// below.
	event(now int64, e membership.Event)

	// depart leaves the group, and waits until no member needs this node. It is called without the mutex.
	depart(ctx context.Context) error

	stands(now int64) standing // of this node
}

// What happens to a node beside the events of its machine.
type (
	stranger struct{} // a node that is no peer has sent a frame, or somebody must know who is a member now
	taken    struct { // a peer has met that life of this number
		by   dmutex.NodeID
		life uint64
	}
	halted struct{}                // this node takes no part in the group any more
	closed struct{ released bool } // nothing runs here any more, and whether all locks were released before
)

// A standing is how a node stands in its group.
type standing struct {
	view    membership.View // that is installed
	missing []dmutex.NodeID // the members that it waits for
	why     error           // for what else it waits
	lease   *Lease          // nil without one
	alone   bool            // no other member could take over what is lent
}
