package locks

import (
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	api "github.com/dmutex/dmutex/lock"
)

// The reasons that a Table has itself. Package node documents those that it exports.
var (
	ErrReplaced = errors.New("another process took this node's number while this one was paused or cut off")
	ErrOverflow = errors.New("more than 2 MiB is unacknowledged: the peer is slow or cannot be reached")

	ErrUnshared = errors.New("the algorithm of this group lets one node in at a time: use central, lamport or ricart.New")

	// ErrViewChanged ends a try whose view has ended, or does not act.
	ErrViewChanged = errors.New("the view has changed")

	// ErrClaim refuses a claim: see [Want].
	ErrClaim = errors.New("the claim is wrong, or comes too early or too late")

	errEarly = errors.New("messages for a view that does not act yet exceed their buffer")
)

// An Error names the lock, the peer or both that an error is about. Like the sentinels it
// does not name the package: the errors of package node, which it becomes, do.
type Error struct {
	Lock string
	Peer dmutex.NodeID
	Err  error
}

func (e *Error) Error() string {
	text := e.Err.Error()
	if e.Peer != dmutex.None {
		text = fmt.Sprintf("peer %d: %s", e.Peer, text)
	}
	if e.Lock != "" {
		text = fmt.Sprintf("lock %q: %s", e.Lock, text)
	}
	return text
}

func (e *Error) Unwrap() error { return e.Err }

// A Cause is why a hold has ended. Holders get it as it is, so it names package node.
type Cause struct {
	Err   error
	at    time.Time // until when the lock was held; zero if nobody needs to know
	lapse uint64    // the number of the Lapse; 0 if it was none
}

func (c *Cause) Error() string { return "node: " + c.Err.Error() }
func (c *Cause) Unwrap() error { return c.Err }

var (
	released = &Cause{Err: api.ErrReleased}

	// overruled ends a hold of a lock for which another member reports a higher fence:
	// this process was paused or cut off, and missed the loss.
	overruled = loss(ErrReplaced)
)

// loss returns the cause of a hold that is lost for the reason given.
func loss(why error) *Cause { return &Cause{Err: fmt.Errorf("%w: %w", api.ErrLost, why)} }
