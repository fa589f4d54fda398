package node

import (
	"fmt"
	"iter"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/transport"
)

// MutexStatus is how one node sees one lock.
type MutexStatus struct {
	Phase dmutex.Phase // of this node

	// Holder is the node that holds the lock, or None if this node does not know.
	// Every node knows its own holds. Only the coordinator of package central knows
	// those of other nodes: it counts a node as the holder from the grant until the
	// release arrives. Under the other algorithms no node knows: the first request in
	// the queue, a vote or the token on its way does not say that the node has
	// already entered.
	Holder dmutex.NodeID

	Fence   uint64        // of this node's grant, 0 if it does not hold the lock
	Age     time.Duration // how long it has been held here, or else how long the first waiter of this node has waited; 0 if Idle
	Waiters int           // goroutines of this node that wait

	// WaitsFor lists the peers that have not answered this node's request, while it
	// waits or a withdrawn request has not had its turn. With the token algorithms it
	// lists all peers, or the next one on the way, because no node knows where the
	// token is.
	WaitsFor []dmutex.NodeID
}

// Status returns how this node sees the lock now.
func (m *Mutex) Status() MutexStatus {
	return MutexStatus(m.node.locks.Status(m.name))
}

// Locks returns the locks in use at this node, with their names, in no particular
// order: those that are held or requested here, and those in which it takes part for
// other nodes. Each status is that of one moment during the iteration. The loop may
// use the locks. The others wait for a small part of it at a time.
func (n *Node) Locks() iter.Seq2[string, MutexStatus] {
	return func(yield func(string, MutexStatus) bool) {
		for name, st := range n.locks.InUse() {
			if !yield(name, MutexStatus(st)) {
				return
			}
		}
	}
}

// Usage sums up the locks of a node.
type Usage struct {
	Held       int           // locks that this node holds
	Waiting    int           // locks that it waits for
	Waiters    int           // goroutines that wait for a lock
	OldestHold time.Duration // the highest Age of those held
	OldestWait time.Duration // the highest Age of those waited for
}

// Usage looks at every lock that the node remembers, and sums them up.
func (n *Node) Usage() Usage { return Usage(n.locks.Usage()) }

// PeerStatus is how one node sees another member, and the traffic with it.
type PeerStatus struct {
	ID   dmutex.NodeID
	Life uint64 // identifies the run of its process that was met last; 0 if none was
	Met  bool   // it was met, and has not closed its end since
	Left bool   // it has closed its end: by Close, or because its node has stopped

	// InView: its present process is a member of the view of this node.
	InView bool

	// Silent is how long nothing has been heard of it; 0 if nothing ever was. An
	// idle group is silent, so this is not a failure detector.
	Silent time.Duration

	// Err is an [ErrConfig] if the peer is configured differently, or why the link
	// does not reach it, if the link can tell, or nil.
	Err error

	Unacked  uint64 // messages that it has not acknowledged; if it has left, those that came too late for it
	Backlog  int    // their size in bytes: above 2 MiB, Acquire returns ErrOverflow
	Resent   uint64 // frames sent to it again, because no acknowledgement came
	Repeated uint64 // frames received from it again

	// RoundTrip is the smoothed time from a frame to its acknowledgement, which may
	// be delayed by up to 5 ms so that it can travel with a message. 0 until measured.
	RoundTrip time.Duration
}

// describe says in a few words what is known of the peer.
func (p PeerStatus) describe() string {
	switch {
	case p.Err != nil:
		return fmt.Sprintf("%v (%s)", p.ID, bare(p.Err))
	case p.Left:
		return fmt.Sprintf("%v (gone)", p.ID)
	case p.Silent == 0:
		return fmt.Sprintf("%v (never heard)", p.ID)
	default:
		return fmt.Sprintf("%v (silent for %v)", p.ID, p.Silent.Round(100*time.Millisecond))
	}
}

func (n *Node) peerStatus(id dmutex.NodeID) PeerStatus {
	st := n.mail.Status(id)
	p := PeerStatus{
		ID: id, Life: st.Life, Met: st.Met && !st.Left, Left: st.Left, Silent: st.Silent,
		Unacked: st.Unacked, Backlog: st.Backlog, Resent: st.Resent, Repeated: st.Repeated, RoundTrip: st.RoundTrip,
	}
	if st.Other != 0 {
		p.Err = n.differs(st.Other)
	} else if l, ok := n.cfg.Link.(transport.Reporter); ok {
		p.Err = l.Trouble(id)
	}
	return p
}

// Status is the state of a node.
type Status struct {
	Err  error  // why nothing is granted anymore: ErrClosed or an ErrStopped; nil while all is well
	Life uint64 // identifies this run of this process; with Config.Store another after each exclusion

	View    ViewStatus
	Lease   *LeaseStatus // nil without Config.Store
	Peers   []PeerStatus // the other members, ascending by ID
	Locks   int          // locks that this node remembers: those in use, a few that rest, and those that the algorithm cannot forget
	Granted uint64       // locks acquired

	Sent     [dmutex.Kinds]uint64 // messages of the algorithm, by kind; summed over all nodes, Sent divided by Granted is the messages per entry
	Received [dmutex.Kinds]uint64
	Refused  uint64 // frames and messages that no correct peer sends

	Probes    uint64 // messages sent or passed on to find deadlocks
	Deadlocks uint64 // waits at this node that ended in ErrDeadlock
}

// leaseState returns how the lease stands; without Config.Store there is none.
func (n *Node) leaseState() LeaseState { return LeaseState(n.views.state.Load()) }

// LeaseStatus is how the lease of a node with Config.Store stands.
type LeaseStatus struct {
	State      LeaseState
	Left       time.Duration // until it ends, unless it is renewed
	Err        error         // why the last operation of the store failed; nil if it did not
	Exclusions int           // how often this process was excluded
}

// ViewStatus is how one node sees the group.
type ViewStatus struct {
	Epoch   uint64          // of the view that is installed, 0 before the first
	Members []dmutex.NodeID // of it, ascending
	Acts    bool            // locks are granted in it
	Age     time.Duration   // how long it has acted, or else how long nothing has been granted here
	Missing []dmutex.NodeID // members that this node waits for; Status.Peers says why
	Err     error           // what else it waits for: the store, leases of former members, or members that the algorithm takes; else nil
	Changes uint64          // views that have begun to act here
	Took    time.Duration   // of the last of them: see ViewChange

	// Ahead is how far the epoch is ahead of this node's clock, if that is more than a
	// minute; else 0. Then some clock is or was wrong, and a restart of all members needs
	// Config.Fence.
	Ahead time.Duration
}

// ahead returns ViewStatus.Ahead.
func ahead(v membership.View) time.Duration {
	if clock := clockNow(); v.Epoch > clock+uint64(time.Minute/time.Millisecond) {
		return time.Duration(v.Epoch-clock) * time.Millisecond
	}
	return 0
}

// Status returns the state of the node. Each number is exact, but they are not read
// at the same instant.
func (n *Node) Status() Status {
	n.views.mu.Lock()
	now := n.views.now() // first: the lease may have ended
	view := n.views.machine.View()
	st := Status{
		Err: n.locks.Why(), Life: n.views.life, Refused: n.refused.Load(),
		Probes: n.probes.Load(), Deadlocks: n.deadlocks.Load(),
		View: ViewStatus{
			Epoch: view.Epoch, Members: view.Nodes(), Acts: n.views.acting.Load(),
			Age:     time.Duration(now - n.views.since),
			Missing: n.views.machine.Missing(nil), Err: n.views.obstacle(), Changes: n.views.count.Load(), Took: n.views.took, Ahead: ahead(view),
		},
	}
	st.Lease = n.views.who.status(now)
	n.views.mu.Unlock()
	for _, id := range n.others() {
		peer := n.peerStatus(id)
		peer.InView = view.Has(id, peer.Life)
		st.Peers = append(st.Peers, peer)
	}
	c := n.locks.Counts()
	st.Locks, st.Granted, st.Sent, st.Received = c.Locks, c.Granted, c.Sent, c.Received
	return st
}
