package node

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// The errors of Acquire, TryAcquire, Campaign and a lost [Held], for [errors.Is].
// Errors of a context are wrapped too: errors.Is finds them.
var (
	// ErrBusy: TryAcquire found the lock taken. See [BusyError].
	ErrBusy = errors.New("node: lock is busy")

	// ErrReleased: this handle has released the lock.
	ErrReleased = locks.ErrReleased

	// ErrLost: the holder no longer has the lock; the error says why.
	ErrLost = locks.ErrLost

	// ErrNotElected: Campaign ended before this node led.
	ErrNotElected = errors.New("node: not elected")

	// ErrResigned: [Election.Resign] asked the leader to give up.
	ErrResigned = errors.New("node: leader resigned")

	// ErrStopped: the node has stopped, though nobody has closed it, and grants nothing
	// more. Let the process exit, so that a supervisor starts it again. The error also
	// says why: [ErrNumberTaken], [ErrReplaced], [ErrEvicted], [ErrRecord], [ErrFull],
	// [ErrConfig], [store.ErrUnusable] or [transport.ErrClosed].
	ErrStopped = group.ErrStopped

	// ErrClosed: the node is closed, by its own process.
	ErrClosed = group.ErrClosed

	// ErrConfig: the [Config] of a peer differs from this node's in a field that must
	// be the same in all members. The text names the fields, if they can be told.
	ErrConfig = group.ErrConfig

	// ErrNumberTaken: another process with this node's number was there first, and is
	// alive, or it took the number while this one was paused and had joined no view. This one
	// grants nothing. Give it a number of its own, or stop the other.
	ErrNumberTaken = group.ErrNumberTaken

	// ErrReplaced: another process took this node's number while this process was
	// paused or cut off. The other members go on with the new process. What was held
	// is lost.
	ErrReplaced = locks.ErrReplaced

	// ErrEvicted: an operator told the other members that this process is dead. They go
	// on without it. What was held is lost.
	ErrEvicted = group.ErrEvicted

	// ErrRecord: the record of the members was deleted, overwritten or restored.
	ErrRecord = membership.ErrRecord

	// ErrFull: the group has as many members as it can have.
	ErrFull = membership.ErrFull

	// ErrStore: the store cannot be reached, or does not answer in time. Nobody may hold
	// a lock without it for longer than a lease. The call goes on when it answers.
	ErrStore = group.ErrStore

	// ErrLease: the store did not answer for a lease, less a margin. What was held is lost.
	ErrLease = group.ErrLease

	// ErrExcluded: the other members went on without this process, because they did not
	// hear from it. What was held is lost. The process rejoins by itself.
	ErrExcluded = group.ErrExcluded

	// ErrDeadlock: transactions wait for each other in a cycle, and this wait was
	// ended so that the others can go on. See [DeadlockError].
	ErrDeadlock = errors.New("node: deadlock")

	// ErrOverflow: a peer has not acknowledged more than 2 MiB of what was sent to it.
	// The call has changed nothing, and a later one may succeed.
	ErrOverflow = locks.ErrOverflow
)

// A PeerError names the peer that stands in the way, and says why: [ErrConfig],
// [ErrOverflow], [dmutex.ErrPeer] or an error of the link.
type PeerError struct {
	Peer dmutex.NodeID
	Err  error
}

func (e *PeerError) Error() string { return fmt.Sprintf("node: peer %d: %s", e.Peer, bare(e.Err)) }

// Unwrap returns Err.
func (e *PeerError) Unwrap() error { return e.Err }

// public makes an error of package locks one of this package.
func public(err error) error {
	e, ok := err.(*locks.Error)
	if !ok {
		return err
	}
	err = e.Err
	if e.Peer != dmutex.None {
		err = &PeerError{e.Peer, err}
	}
	if e.Lock != "" {
		err = &LockError{e.Lock, err}
	}
	return err
}

// A LockError names the lock that an error is about.
type LockError struct {
	Lock string
	Err  error
}

func (e *LockError) Error() string { return fmt.Sprintf("node: lock %q: %s", e.Lock, bare(e.Err)) }

// Unwrap returns Err.
func (e *LockError) Unwrap() error { return e.Err }

// bare returns the text of err for a text that already names this package.
func bare(err error) string { return strings.TrimPrefix(err.Error(), "node: ") }

// A BusyError is an [ErrBusy] that names the lock, and its holder if it is known.
type BusyError struct {
	Lock   string
	Holder dmutex.NodeID // None if this node does not know it, see [MutexStatus]
	Here   bool          // the holder is this node
}

func (e *BusyError) Error() string {
	switch {
	case e.Holder == dmutex.None:
		return fmt.Sprintf("node: lock %q is busy", e.Lock)
	case e.Here:
		return fmt.Sprintf("node: lock %q is busy: held by this process", e.Lock)
	}
	return fmt.Sprintf("node: lock %q is busy: held by node %d", e.Lock, e.Holder)
}

// Is makes a BusyError an [ErrBusy].
func (e *BusyError) Is(target error) bool { return target == ErrBusy }

// A DeadlockError is an [ErrDeadlock] that names the cycle. At one instant every
// wait of the cycle was under way. The first one was ended.
type DeadlockError struct{ Cycle []Edge }

// An Edge is a transaction that waits for a lock which another transaction holds.
type Edge struct {
	Waiter dmutex.NodeID // the node of the waiting transaction
	Lock   string
	Holder dmutex.NodeID // the node of the holding transaction, which may be the same
}

func newDeadlockError(path []chase.Wait) error {
	e := &DeadlockError{}
	for i, w := range path {
		e.Cycle = append(e.Cycle, Edge{w.Node, w.Lock, path[(i+1)%len(path)].Node})
	}
	return e
}

func (e *DeadlockError) Error() string {
	var b strings.Builder
	fmt.Fprint(&b, ErrDeadlock, ": ")
	for i, edge := range e.Cycle {
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
