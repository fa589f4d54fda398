// Package lock has the interface of a lock that processes share. Write code that needs a lock
// against [Mutex]. Where the lock comes from is then one line of the program:
//
//	var nightly lock.Mutex = n.Mutex("nightly")        // n is a node.Node, a member of a group
//	var nightly lock.Mutex = c.Mutex("nightly")        // c is a client.Client, a client of members
//	nightly, err := storelock.New(s, "nightly", 0)     // a record in a store
//	nightly := locktest.New("nightly")                 // for tests
package lock

import (
	"context"
	"errors"
	"time"
)

// The errors of a lock, for [errors.Is]. Errors of a context are wrapped, too.
var (
	ErrBusy     = errors.New("lock is busy")      // TryAcquire found the lock taken
	ErrReleased = errors.New("lock was released") // by this handle
	ErrLost     = errors.New("lock was lost")     // the error says why
)

// A Mutex is a named lock that excludes processes, and goroutines of one process, too. Its
// methods are safe for concurrent use.
type Mutex interface {
	Name() string

	// Acquire waits for the lock. It returns either a handle or an error, never both. ctx does
	// not bound the time that the lock is held.
	Acquire(ctx context.Context) (Held, error)

	// TryAcquire returns ErrBusy instead of waiting for a holder.
	TryAcquire(ctx context.Context) (Held, error)

	// Do runs f while it holds the lock. It releases the lock when f has returned, panicked or
	// ended its goroutine, and not before, even if ctx ends. f's context is derived from ctx, and
	// also ends with Held.Context. Do returns the error of Acquire, or f's error joined with an
	// ErrLost if the lock was lost while f ran.
	Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error
}

// A Held is the handle of a lock that is held, from a successful Acquire to Release. The handle
// owns the lock: any goroutine that has it may release it. Its methods are safe for concurrent
// use, and only Release may wait.
//
// A write may still be on its way when its process dies or loses the lock, and arrive when
// another process holds the lock. Only a resource that refuses fences lower than the highest it
// has seen is safe from that: pass Fence with every write.
type Held interface {
	// Context ends with the hold. [context.Cause] is then the first error that Err returned. It
	// has the values of Acquire's context, but not its deadline or cancellation.
	Context() context.Context

	// Fence is the number of this grant. Of any two grants of a lock the later has the higher.
	Fence() uint64

	// Err is nil while the lock is held, then an ErrReleased or an ErrLost. If the lock has a
	// lease, Err reads the clock: after a pause of the process its first call reports the loss.
	Err() error

	// Until is the time before which no other caller gets the lock, unless it is released. A
	// renewal moves it. It is the zero time if no lease limits the hold, and not in the
	// future after the hold.
	Until() time.Time

	// Suspended reports that the renewal of the lease is late: the lock is still held, and is
	// lost at Until unless a renewal succeeds before.
	Suspended() bool

	// Release gives the lock back. It ends this grant and never another, and may be called
	// again. It returns an ErrLost if the lock was lost, and otherwise nil. Release a lock that
	// was lost, too: others may wait for it.
	Release() error
}
