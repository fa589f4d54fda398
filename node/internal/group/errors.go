package group

import "errors"

// Why a node grants nothing, for a while or for good. Package node documents them.
var (
	ErrStopped     = errors.New("node: the node has stopped: let the process exit")
	ErrClosed      = errors.New("node: the node is closed")
	ErrConfig      = errors.New("node: configured differently: Members, Algorithm, Group, Deadlock and Lease must be the same in all members")
	ErrNumberTaken = errors.New("node: another process uses this node's number: give each process its own, or stop the other one first")
	ErrEvicted     = errors.New("node: evicted: the group goes on without this process; restart it to join again")
	ErrStore       = errors.New("node: the store does not answer: nothing is granted until it does")
	ErrLease       = errors.New("node: the lease was not renewed in time")
	ErrExcluded    = errors.New("node: the other members did not hear from this process, and excluded it")
)

// A stopError is an ErrStopped that says why.
type stopError struct{ error }

func (e *stopError) Unwrap() error        { return e.error }
func (e *stopError) Is(target error) bool { return target == ErrStopped }
