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

// The errors of a lock, for [errors.Is]. Errors of a context are wrapped, too. The error of an Acquire
// whose context has ended wraps ErrBusy as well if a client or a record has seen a holder.
var (
	ErrBusy     = errors.New("lock is busy")      // TryAcquire found the lock taken
	ErrReleased = errors.New("lock was released") // by this handle
	ErrLost     = errors.New("lock was lost")     // the error says why
)

// MaxName is the length of the longest name of a lock of a group, in bytes. The shortest has one.
// A name may contain any bytes, not only UTF-8.
const MaxName = 255

// An Event is the end of a wait for a lock, or of a hold, for the Observer of a node.Node or a
// client.Client.
type Event struct {
	Lock  string
	Fence uint64        // of the grant; 0 if there was none
	Took  time.Duration // from the call to its end, including the time until the group was ready; from the grant to its end; or how long a client's hold was suspended
	Err   error         // what the call returns, nil if the lock was granted; or why a hold was lost, nil if it was released

	// Outcome sums up Err in a word that can label a metric. Of a wait: granted; busy;
	// canceled or deadline, if its context ended; deadlock; or failed, for any other error.
	// Of a hold: released, lost, or moved to another member.
	Outcome string
}

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

// A Sharable is a Mutex that callers may also share: that of a member, of a client, and of locktest.
type Sharable interface {
	Mutex

	// Shared returns the same lock for callers that share it: any number of them hold it at the same
	// time, and nobody holds it alone then. A call waits behind those that already wait to hold it
	// alone. Do not acquire a lock under a hold of it, shared or not: if another waits in between, all
	// wait forever.
	Shared() Mutex
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

	// Fence is the number of this grant. Of any two grants of a lock the later has the higher, unless
	// both share it.
	Fence() uint64

	// Err is nil while the lock is held, then an ErrReleased or an ErrLost. If the lock has a
	// lease, Err reads the clock: after a pause of the process its first call reports the loss.
	Err() error

	// Until is the time before which no other caller gets the lock, unless it is released, or given up because
	// the wall clock was set forward. A renewal moves it. It is the zero time if no lease limits the
	// hold, and not in the future after the hold.
	Until() time.Time

	// Suspended reports that the renewal of the lease is late: the lock is still held, and is
	// lost at Until unless a renewal succeeds before.
	Suspended() bool

	// Release gives the lock back. It ends this grant and never another, and may be called
	// again. It returns an ErrLost if the lock was lost, and otherwise nil. Release a lock that
	// was lost, too: others may wait for it.
	Release() error
}
