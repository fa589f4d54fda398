package locks

import (
	"errors"
	"fmt"
	"strings"

	"github.com/dmutex/dmutex"
)

// The reasons that a Table has itself. Package node documents those that it exports.
var (
	ErrReleased = errors.New("node: lock was released")
	ErrLost     = errors.New("node: lock was lost")
	ErrReplaced = errors.New("node: another process took this node's number while this one was paused or cut off")
	ErrOverflow = errors.New("node: more than 2 MiB is unacknowledged: the peer is slow or cannot be reached")

	// ErrViewChanged ends a try whose view has ended, or does not act.
	ErrViewChanged = errors.New("node: the view has changed")

	errEarly = errors.New("node: messages for a view that does not act yet exceed their buffer")

	// overruled ends a hold of a lock for which another member reports a higher fence:
	// this process was paused or cut off, and missed the loss.
	overruled = loss(ErrReplaced)
)

// An Error names the lock, the peer or both that an error is about.
type Error struct {
	Lock string
	Peer dmutex.NodeID
	Err  error
}

func (e *Error) Error() string {
	text := strings.TrimPrefix(e.Err.Error(), "node: ")
	if e.Peer != dmutex.None {
		text = fmt.Sprintf("peer %d: %s", e.Peer, text)
	}
	if e.Lock != "" {
		text = fmt.Sprintf("lock %q: %s", e.Lock, text)
	}
	return "node: " + text
}

func (e *Error) Unwrap() error { return e.Err }

// A lossError is an ErrLost with its cause.
type lossError struct{ cause error }

func (e *lossError) Error() string {
	return ErrLost.Error() + ": " + strings.TrimPrefix(e.cause.Error(), "node: ")
}
func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }

// loss returns how a hold ends that is lost, for the reason given.
func loss(why error) *error {
	var err error = &lossError{why}
	return &err
}
