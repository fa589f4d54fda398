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
	ErrBusy = errors.New("node: lock is busy")

	// ErrReleased: the lock was released by this handle's Release.
	ErrReleased = errors.New("node: lock was released")

	// ErrLost: the lock was taken from its holder; the error says by what.
	ErrLost = errors.New("node: lock was lost")

	// ErrMaxHold: the lock is held for longer than [Mutex.MaxHold]. It is not
	// lost, but the holder was to stop.
	ErrMaxHold = errors.New("node: lock was held for longer than its MaxHold")

	// ErrNotElected: Campaign has ended without leading.
	ErrNotElected = errors.New("node: not elected")

	// ErrResigned: the leader was asked to give up, by [Election.Resign].
	ErrResigned = errors.New("node: resigned")

	// ErrClosed: the node is closed.
	ErrClosed = errors.New("node: closed")

	// ErrConfig: a peer has another [Config] than this node where all members
	// must have the same. The text says in which fields, where that can be told.
	ErrConfig = errors.New("node: configured for another group: all members must agree on Members, Algorithm, Group and Deadlock")

	// ErrNumberTaken: another process with this node's number is alive, and was there
	// first. This one grants nothing. Give it a number of its own, or stop the other.
	ErrNumberTaken = errors.New("node: another process uses this node's number: give each process its own, or stop the other one first")

	// ErrReplaced: this process was paused or cut off, and meanwhile another one has
	// taken its number. The others go on with that one. What was held is lost.
	ErrReplaced = errors.New("node: another process has taken this node's number while this one was paused or cut off")

	// ErrEvicted: an operator has told the others that this process is dead. They go on
	// without it. What was held is lost.
	ErrEvicted = errors.New("node: evicted: the group goes on without this process; restart it to join again")

	// ErrDeadlock: transactions wait for each other in a circle, and this wait is
	// the one that was ended so that the others can go on. See [DeadlockError].
	ErrDeadlock = errors.New("node: deadlock")

	// ErrOverflow: a peer takes too little of what is sent to it: more than 2 MiB is
	// not acknowledged. Nothing has changed, and a later call may succeed.
	ErrOverflow = errors.New("node: too much is unacknowledged")
)

// A PeerError says which peer stands in the way, and why: [ErrConfig],
// [ErrOverflow] or [dmutex.ErrPeer].
type PeerError struct {
	Peer dmutex.NodeID
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("node %d: %v", e.Peer, e.Err) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// A LockError says in which lock something happened.
type LockError struct {
	Lock string
	Err  error
}

func (e *LockError) Error() string { return fmt.Sprintf("node: lock %q: %v", e.Lock, e.Err) }

// Unwrap returns Err.
func (e *LockError) Unwrap() error { return e.Err }

// A BusyError is an [ErrBusy] that says who holds the lock.
type BusyError struct {
	Lock   string
	Holder dmutex.NodeID // None where the algorithm does not tell this node
}

func (e *BusyError) Error() string {
	if e.Holder == dmutex.None {
		return fmt.Sprintf("node: lock %q is busy", e.Lock)
	}
	return fmt.Sprintf("node: lock %q is busy: held by node %d", e.Lock, e.Holder)
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
