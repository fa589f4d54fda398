package group

import "errors"

// Why a node grants nothing, for a while or for good. Package node documents them.
var (
	ErrStopped     = errors.New("the node has stopped: let the process exit")
	ErrClosed      = errors.New("the node is closed")
	ErrConfig      = errors.New("configured differently: Members, Algorithm, Group, Deadlock and Lease must be the same in all members")
	ErrNumberTaken = errors.New("another process uses this node's number: give each process its own, or stop the other one first")
	ErrEvicted     = errors.New("evicted: the group goes on without this process; restart it to join again")
	ErrStore       = errors.New("the store does not answer: nothing is granted until it does")
	ErrLease       = errors.New("the lease was not renewed in time")
	ErrExcluded    = errors.New("the other members did not hear from this process, and excluded it")
)

// A stopError is an ErrStopped that says why.
type stopError struct{ error }

func (e *stopError) Unwrap() error        { return e.error }
func (e *stopError) Is(target error) bool { return target == ErrStopped }
