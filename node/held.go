package node

import (
	"context"

	"github.com/dmutex/dmutex/node/internal/group"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A Held is the handle of a lock that is held, from a successful Acquire to Release.
// The handle owns the lock, not the goroutine: any goroutine that has it may release
// it. Its methods are safe for concurrent use and none of them waits. It must not be
// copied.
//
// A write may still be on its way when its process dies or loses the lock, and
// arrive when another process holds it. Only a resource that refuses fences lower
// than the highest it has seen is safe from that: pass Fence with every write.
type Held locks.Held

// core returns the handle as package locks has made it, at the grant.
func (h *Held) core() *locks.Held { return (*locks.Held)(h) }

func (h *Held) node() *Node { return h.core().Node().(up).Node }

// Fence returns the number of this grant. Of any two grants of one lock the
// later has the higher number.
func (h *Held) Fence() uint64 { return h.core().Fence() }

// Err says whether the work may go on. It returns nil while the lock is held,
// [ErrReleased] after Release, and an [ErrLost] that says why if the lock was lost.
//
// With Config.Store it reads the clock: a process that was paused for longer than its lease
// learns from its first Err that the lock is lost, before any timer has run.
func (h *Held) Err() error { return h.core().Err() }

// Suspended reports whether the lease of this node is late to be renewed, as when the
// store does not answer: the lock is still held, and is lost soon if the store goes on
// not to answer. It is false without Config.Store.
func (h *Held) Suspended() bool {
	return h.Err() == nil && h.node().group.LeaseState() == group.LeaseLate
}

// Context returns a context that ends with the hold. [context.Cause] is then the first
// error that Err returned. The context has the values of Acquire's context, but not
// its deadline or cancellation.
//
// To tell the work to stop if it takes too long, derive a context from this one:
//
//	ctx, cancel := context.WithTimeout(held.Context(), time.Minute)
//
// The lock stays held until Release, because the work may go on for a moment.
func (h *Held) Context() context.Context { return h.core().Context() }

// Release gives the lock back. It ends this grant and never another: if the hold is
// already over, Release changes nothing. It returns an [ErrLost] if the lock was
// lost, and otherwise nil.
func (h *Held) Release() error {
	hold, ended, err := h.core().Release()
	if ended {
		h.node().tell(hold)
	}
	return err
}
