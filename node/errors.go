package node

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership/lease"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// What an [Error] wraps, for [errors.Is]. An error of a context that has ended wraps its Err
// and its [context.Cause].
var (
	ErrBusy     = lock.ErrBusy     // TryAcquire found the lock taken
	ErrReleased = lock.ErrReleased // this handle has released the lock
	ErrLost     = lock.ErrLost     // the holder no longer has the lock; the error says why

	ErrDeadlock = errors.New("deadlock") // transactions wait for each other in a cycle, and this wait was ended so that the others go on; see [Error]

	ErrNotElected = errors.New("not elected")     // Campaign ended before this node led
	ErrResigned   = errors.New("leader resigned") // [Election.Resign] asked the leader to give up

	ErrClosed  = group.ErrClosed  // the node is closed, by its own process
	ErrEvicted = group.ErrEvicted // an operator told the other members that this process is dead
	ErrRecord  = lease.ErrRecord  // the record of the members was deleted, overwritten or restored
	ErrFull    = group.ErrFull    // the group has as many members as it can have; this process joins when one leaves
	ErrLease   = group.ErrLease   // the store did not confirm the lease in time; what was held is lost

	// ErrStopped: the node has stopped by itself, without a Close, and grants nothing
	// more. Let the process exit, so that a supervisor starts it again: see [Node.Done]. The
	// error also says why: [ErrNumberTaken], [ErrReplaced], [ErrEvicted], [ErrRecord],
	// [ErrConfig], [store.ErrUnusable] or [transport.ErrClosed].
	ErrStopped = group.ErrStopped

	// ErrConfig: the [Config] of a peer differs from this node's in a field that must be the
	// same in all members, or its release speaks no version of the protocol that this one does.
	// The text has what both have.
	ErrConfig = group.ErrConfig

	// ErrNumberTaken: another process with this node's number was there first, and is
	// alive, or it took the number while this one was paused and had joined no view. Give this
	// one a number of its own, or stop the other.
	ErrNumberTaken = group.ErrNumberTaken

	// ErrReplaced: another process took this node's number while this process was paused or
	// cut off, and the other members go on with the new process.
	ErrReplaced = locks.ErrReplaced

	// ErrStore: the store cannot be reached, or does not answer in time. Nobody may hold
	// a lock without it for longer than a lease. The call goes on when it answers.
	ErrStore = group.ErrStore

	// ErrExcluded: the other members went on without this process, because they did not
	// hear from it. What was held is lost. The process rejoins by itself.
	ErrExcluded = group.ErrExcluded

	// ErrUnshared: the algorithm of this group does not share locks; see [Mutex.Shared].
	ErrUnshared = locks.ErrUnshared

	// ErrOverflow: a peer has not acknowledged more than 2 MiB of what was sent to it.
	// The call has changed nothing, and a later one may succeed.
	ErrOverflow = locks.ErrOverflow
)

// An Error is what the functions of this package return, except for a [dmutex.ErrMisuse]. Its text
// names the package, and the lock or the peer that it is about. Use [errors.Is] to find out why, and
// [errors.AsType] for the fields.
type Error struct {
	Lock   string        // the lock that the error is about, if it is about one
	Peer   dmutex.NodeID // the peer that stands in the way: Err wraps [ErrConfig], [ErrOverflow], [dmutex.ErrPeer] or an error of the link
	Holder dmutex.NodeID // of an [ErrBusy], None if this node does not know it, see [MutexStatus]
	Cycle  []Edge        // of an [ErrDeadlock]: at one instant every wait of it was under way; the first one was ended
	Err    error
}

// An Edge is a transaction that waits for a lock which another transaction holds.
type Edge struct {
	Waiter dmutex.NodeID // the node of the waiting transaction
	Lock   string
	Holder dmutex.NodeID // the node of the holding transaction, which may be the same
}

func (e *Error) Error() string {
	text := "node: "
	if e.Lock != "" {
		text += fmt.Sprintf("lock %q: ", e.Lock)
	}
	if e.Err != nil {
		text += e.Err.Error()
	}
	for i, edge := range e.Cycle {
		who := ", which"
		if i == 0 {
			who = fmt.Sprintf(": node %d", edge.Waiter)
		}
		text += fmt.Sprintf("%s waits for %q, held by node %d", who, edge.Lock, edge.Holder)
	}
	return text
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// public makes err, which may be about the lock, an error of this package. Within it errors
// do not name the package: here they get the name, once.
func public(lock string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *Error:
		named := *e
		named.Lock = cmp.Or(e.Lock, lock)
		return &named
	case *locks.Error:
		return &Error{Lock: cmp.Or(e.Lock, lock), Peer: e.Peer, Err: &locks.Error{Peer: e.Peer, Err: e.Err}}
	case *locks.Cause:
		err = e.Err
	}
	if errors.Is(err, dmutex.ErrMisuse) {
		return err
	}
	return &Error{Lock: lock, Err: err}
}
