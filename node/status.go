package node

import (
	"fmt"
	"iter"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// MutexStatus is how one node sees one lock.
type MutexStatus struct {
	Phase dmutex.Phase // of this node

	// Home is the member at which the lock begins in this view, as the documentation of this
	// package says. None if the lock is not in use at this node.
	Home dmutex.NodeID

	// Holder is the node that holds the lock, or None if this node does not know.
	// Every node knows its own holds. Only the coordinator of package central knows
	// those of other nodes: it counts a node as the holder from the grant until the
	// release arrives. None, too, while the lock is shared: see Sharers.
	Holder dmutex.NodeID

	// HeldFor is how long Holder has held the lock: of this node since its grant, and of another
	// since this node learned of it, which a change of the group may make later than its grant.
	HeldFor time.Duration

	Shared  bool            // this node shares the lock, or its request does: see [Mutex.Shared]
	Sharing int             // callers of this node that share it
	Sharers []dmutex.NodeID // nodes that share it, known as Holder is

	Client  string        // the client for which this node holds it, if it is for one
	Fence   uint64        // of this node's grant, 0 if it does not hold the lock
	Age     time.Duration // how long it has been held here, or else how long the first waiter of this node has waited; 0 if Idle
	Waiters int           // goroutines of this node that wait

	// WaitsFor lists the peers that have not answered this node's request, while it
	// waits or a withdrawn request has not had its turn. With the token algorithms it
	// lists all peers, or the next one on the way to the token.
	WaitsFor []dmutex.NodeID

	// Former lists the excluded members that may still hold the lock, and FormerNames how errors
	// call them, as in "web-2 (node 2)". No member requests the lock until their leases have ended,
	// at the latest after Drains.
	Former      []dmutex.NodeID
	FormerNames []string
	Drains      time.Duration
}

// Status returns how this node sees the lock now.
func (m *Mutex) Status() MutexStatus {
	if !m.made() {
		return MutexStatus{}
	}
	return m.node.named(m.node.locks.Status(m.name))
}

// named adds the names of former members.
func (n *Node) named(st locks.Status) MutexStatus {
	st.FormerNames = n.group.AllCalled(st.Former)
	return MutexStatus(st)
}

// Locks returns the locks in use at this node, with their names, in no particular
// order: those that are held or requested here, and those in which it takes part for
// other nodes. Each status is that of one moment during the iteration. The loop may
// use the locks.
func (n *Node) Locks() iter.Seq2[string, MutexStatus] {
	return func(yield func(string, MutexStatus) bool) {
		if n.group != nil { // the node was opened
			n.locks.InUse()(func(name string, st locks.Status) bool { return yield(name, n.named(st)) })
		}
	}
}

// PeerStatus is how one node sees another member, and the traffic with it.
type PeerStatus struct {
	ID   dmutex.NodeID
	Name string // what its process calls itself, with " (ID)" added if a peer before it has that name; empty if it is not known

	// Address is where the record in the store says that it is; empty in the strict mode, and
	// if the link needs none.
	Address string

	Life   uint64 // identifies the run of its process that was met last; 0 if none was
	Met    bool   // it was met, and has not closed its end since
	Left   bool   // it has closed its end: by Close, or because its node has stopped
	InView bool   // its present process is a member of the view of this node

	Silent time.Duration // time since it was last heard, 0 if it never was; an idle group is silent, too
	Err    error         // an [ErrConfig] if the peer is configured differently, or why the link does not reach it, if the link can tell

	// MayHold is how many of the locks in use here the peer may hold, as far as this node knows. In
	// the lease mode its crash delays at most these of them.
	MayHold int

	Unacked  uint64 // messages that it has not acknowledged
	Backlog  int    // their size in bytes: above 2 MiB, Acquire returns ErrOverflow
	Resent   uint64 // frames sent to it again, because no acknowledgement came
	Repeated uint64 // frames received from it again

	// RoundTrip is the smoothed time from a frame to its acknowledgement, which may
	// be delayed by up to 20 ms so that it can travel with a message. 0 until measured.
	RoundTrip time.Duration
}

// Status is the state of a node.
type Status struct {
	Name  string // Config.Name
	Group string // Config.Group
	Err   error  // why nothing is granted anymore: ErrClosed or an ErrStopped; nil while all is well
	Life  uint64 // identifies this run of this process; in the lease mode another after each exclusion

	View  ViewStatus
	Lease *LeaseStatus // nil in the strict mode
	Peers []PeerStatus // the other members, ascending by ID

	Clients        []ClientStatus // those that this node serves, by name
	ClientsLost    uint64         // sessions of clients that ended without their word: a client was silent, or this node lost its lease
	ClientsRefused uint64         // clients, and requests of clients, that Clients.Allow or a limit has refused, and connections that failed before a client said hello, for example because a certificate has expired
	ClientsClaims  uint64         // how often a client that does not reach another member has asked this node to take over a lock that it holds by that one
	ClientsMoved   uint64         // locks that this node has taken over so; it refuses while that member is not gone

	Held       int           // locks that this node holds
	Shared     int           // those of them that it shares
	Waiting    int           // locks that it waits for
	Waiters    int           // goroutines that wait for a lock
	OldestHold time.Duration // the highest Age of those held
	OldestWait time.Duration // the highest Age of those waited for

	// Draining counts those waited for that a former member may hold, and Drains is the time
	// until they go on at the latest: see MutexStatus.
	Draining int
	Drains   time.Duration

	Locks   int    // locks that this node remembers: those in use, a few that rest, and those that the algorithm cannot forget
	Granted uint64 // locks acquired

	Sent     [dmutex.Kinds]uint64 // messages of the algorithm, by kind; summed over all nodes, Sent divided by Granted is the messages per entry
	Received [dmutex.Kinds]uint64
	Refused  uint64 // frames and messages that no correct peer sends

	Probes    uint64 // messages sent or passed on to find deadlocks
	Deadlocks uint64 // waits at this node that ended in ErrDeadlock
}

// LeaseState is how a lease stands, as a word: its String is valid, late or ended.
type LeaseState = leases.State

// The states of a lease.
const (
	LeaseEnded = leases.Ended
	LeaseValid = leases.Valid
	LeaseLate  = leases.Late
)

// LeaseStatus is how the lease of a node that [Open] has opened stands.
type LeaseStatus struct {
	// State is LeaseValid; LeaseLate, if it was not renewed in time, see [lock.Held.Suspended]; or
	// LeaseEnded, also if it has not begun: nothing is held, and nothing is granted.
	State LeaseState

	Length     time.Duration // Config.Lease
	Remains    time.Duration // until it ends, unless it is renewed
	Err        error         // why the last operation of the store failed; nil if it did not
	Exclusions int           // how often this process was excluded
}

// ViewStatus is how one node sees the group, and the last change of it.
type ViewStatus struct {
	Epoch   uint64          // of the view that is installed, 0 before the first: its fences begin with it
	Members []dmutex.NodeID // of it, ascending
	Acts    bool            // locks are granted in it
	Age     time.Duration   // how long it has acted, or else how long nothing has been granted here
	Missing []dmutex.NodeID // members that this node waits for; Status.Peers says why
	Err     error           // what else it waits for: the store, leases of former members, or members that the algorithm takes; else nil

	// Ahead is how far the epoch is ahead of this node's clock, if that is more than a
	// minute; else 0. Then some clock is or was wrong, and Config.Fence is needed when all members
	// restart, or with a store when its record is lost.
	Ahead time.Duration

	Changes uint64          // views that have begun to act here; what follows is of the last of them
	Joined  []dmutex.NodeID // members that were not in the view before it that acted here, or were there as another process
	Left    []dmutex.NodeID // members of that view that have left, or were replaced by another process
	Took    time.Duration   // how long nothing was granted here
	Cause   error           // why this node asked for the change, an Error; nil if it did not, as when a member joins or leaves
}

func viewStatus(v group.View) ViewStatus {
	v.Cause = public("", v.Cause)
	return ViewStatus(v)
}

// Status returns the state of the node. Each number is exact, but they are not read
// at the same instant. It looks at every lock that the node remembers.
func (n *Node) Status() Status {
	if n.group == nil {
		return Status{Err: errUnopened}
	}
	g, sum := n.group.Status(), n.locks.Totals()
	st := Status{
		Name: n.cfg.Name, Group: n.cfg.Group, Err: public("", n.locks.Why()), Life: g.Life, View: viewStatus(g.View),
		Held: sum.Held, Shared: sum.Shared, Waiting: sum.Waiting, Waiters: sum.Waiters, OldestHold: sum.OldestHold, OldestWait: sum.OldestWait,
		Draining: sum.Draining, Drains: sum.Drains,
		Locks: sum.Locks, Granted: sum.Granted, Sent: sum.Sent, Received: sum.Received, Refused: g.Refused,
		Probes: n.probes.Load(), Deadlocks: n.deadlocks.Load(), Lease: (*LeaseStatus)(g.Lease),
	}
	if n.clients != nil {
		for _, c := range n.clients.Status() {
			st.Clients = append(st.Clients, ClientStatus(c))
		}
		st.ClientsLost, st.ClientsRefused = n.clients.Lost.Load(), n.clients.Refused.Load()
		st.ClientsClaims, st.ClientsMoved = n.clients.Claims.Load(), n.clients.Moved.Load()
	}
	names := map[string]bool{"": true, n.cfg.Name: true}
	for _, id := range n.group.Others() {
		m, err := n.group.Peer(id)
		about := n.group.About(id)
		for about.Name != "" && names[about.Name] {
			about.Name = fmt.Sprintf("%s (%d)", about.Name, id)
		}
		names[about.Name] = true
		st.Peers = append(st.Peers, PeerStatus{
			ID: id, Name: about.Name, Address: about.Address, Life: m.Life, Met: m.Life != 0 && !m.Left, Left: m.Left, InView: g.Lives.Has(id, m.Life), MayHold: sum.MayHold[id], Silent: m.Silent, Err: err,
			Unacked: m.Unacked, Backlog: m.Backlog, Resent: m.Resent, Repeated: m.Repeated, RoundTrip: time.Duration(m.RoundTrip),
		})
	}
	return st
}
