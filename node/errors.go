package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
)

// What Acquire, TryAcquire, Campaign and a lost [Held] answer to, through
// [errors.Is].
// Context errors come through as they are.
var (
	// ErrBusy: TryAcquire found the lock taken. See [BusyError].
	ErrBusy = errors.New("lock is busy")

	// ErrReleased: the lock was released by this handle's Release.
	ErrReleased = errors.New("lock was released")

	// ErrLost: the lock was taken from its holder; the error says by what.
	ErrLost = errors.New("lock was lost")

	// ErrMaxHold: the lock is held for longer than [Mutex.MaxHold]. It is not
	// lost, but the holder was to stop.
	ErrMaxHold = errors.New("lock was held for longer than its MaxHold")

	// ErrNotElected: Campaign has ended without leading.
	ErrNotElected = errors.New("was not elected")

	// ErrResigned: the leader was asked to give up, by [Election.Resign].
	ErrResigned = errors.New("has resigned")

	// ErrClosed: the node is closed.
	ErrClosed = errors.New("node is closed")

	// ErrConfig: a peer has another [Config] than this node where all members
	// must have the same. The text says in which fields, where that can be told.
	ErrConfig = errors.New("it is configured for another group: all members must agree on Members, Algorithm, Group, Fence and Deadlock")

	// ErrRestarted: a peer has restarted and forgotten what it knew. A group
	// of fixed members cannot tell what it had granted, so from now on nothing
	// is granted here. A second process that is started with the id of one that
	// lives looks the same. See [PeerError].
	ErrRestarted = errors.New("it has restarted and forgotten who holds what, or two processes use its id; restart the whole group")

	// ErrLeft: a peer has closed of which a request for the lock, of this or of
	// another member, awaits something; or which had not met all members when this
	// one had, and then the group never begins ([Status].Err).
	ErrLeft = errors.New("it has left the group")

	// ErrDeadlock: transactions wait for each other in a circle, and this wait is
	// the one that was ended so that the others can go on. See [DeadlockError].
	ErrDeadlock = errors.New("deadlock")

	// ErrOverflow: a peer takes too little of what is sent to it. As the error
	// of an Acquire it has changed nothing, and a later one may succeed, unless
	// it is [Status].Err too: then the group is broken.
	ErrOverflow = errors.New("too much waits to be sent to it")
)

// A PeerError says which peer stands in the way, and why: [ErrConfig],
// [ErrRestarted], [ErrLeft], [ErrOverflow] or [dmutex.ErrPeer].
type PeerError struct {
	Peer dmutex.NodeID
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("node %d: %v", e.Peer, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// A BusyError is an [ErrBusy] that says who holds the lock.
type BusyError struct {
	Lock   string
	Holder dmutex.NodeID // None where the algorithm does not tell this node
}

func (e *BusyError) Error() string {
	if e.Holder == dmutex.None {
		return fmt.Sprintf("lock %q is busy", e.Lock)
	}
	return fmt.Sprintf("lock %q is busy: held by node %d", e.Lock, e.Holder)
}

// Is makes a BusyError an [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// A DeadlockError is an [ErrDeadlock] that names the circle. There was an
// instant at which each wait of it was on; the first is the one that was ended.
type DeadlockError struct{ Circle []Edge }

// An Edge is a transaction that waits for a lock which another one holds.
type Edge struct {
	Waiter dmutex.NodeID // its node
	Lock   string
	Holder dmutex.NodeID // the node of the one that holds the lock, which may be the same
}

func newDeadlockError(path []deadlock.Wait) error {
	e := &DeadlockError{}
	for i, w := range path {
		e.Circle = append(e.Circle, Edge{w.Node, w.Lock, path[(i+1)%len(path)].Node})
	}
	return e
}

func (e *DeadlockError) Error() string {
	var b strings.Builder
	fmt.Fprint(&b, ErrDeadlock, ": ")
	for i, edge := range e.Circle {
		if i == 0 {
			fmt.Fprintf(&b, "node %d", edge.Waiter)
		} else {
			b.WriteString(", which")
		}
		fmt.Fprintf(&b, " waits for %q, held by node %d", edge.Lock, edge.Holder)
	}
	return b.String()
}

// Is makes a DeadlockError an [ErrDeadlock].
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }
