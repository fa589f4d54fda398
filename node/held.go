package node

import (
	"context"
	"sync/atomic"

	"github.com/dmutex/dmutex"
)

// A Held is the handle of a lock that is held, from a successful Acquire to Release.
// The handle owns the lock, not the goroutine: any goroutine that has it may release
// it. Its methods are safe for concurrent use and none of them waits. It must not be
// copied.
//
// A write may still be on its way when its process dies or loses the lock, and
// arrive when another process holds it. Only a resource that refuses fences lower
// than the highest it has seen is safe from that: pass Fence with every write.
type Held struct {
	lock  *lock
	fence uint64
	since int64                 // when it was granted, by Mail.Now
	over  atomic.Pointer[error] // why it is no longer held; nil while it is
	ctx   context.Context       // Acquire's, and a holdContext once one is needed; guarded by the shard's mutex
}

// A holdContext ends with the hold.
type holdContext struct {
	context.Context
	cancel context.CancelCauseFunc
	asked  chan struct{} // see Asked; nil until Ask or Asked needs it
}

// end marks the hold as over. The first reason stays: a hold may be lost, and be
// released only later.
func (h *Held) end(reason *error) {
	if !h.over.CompareAndSwap(nil, reason) {
		return
	}
	if c, ok := h.ctx.(*holdContext); ok {
		c.cancel(*reason)
	}
}

// How a hold ends. They are pointers so that a Release allocates nothing.
var (
	released       = &ErrReleased
	closed   error = &lossError{ErrClosed}

	// overruled ends a hold of a lock for which another member reports a higher fence:
	// this process was paused or cut off, and missed the loss.
	overruled error = &lossError{ErrReplaced}
)

// Fence returns the number of this grant. Of any two grants of one lock the
// later has the higher number.
func (h *Held) Fence() uint64 { return h.fence }

// Err says whether the work may go on. It returns nil while the lock is held,
// [ErrReleased] after Release, and an [ErrLost] that says why if the lock was lost.
//
// With Config.Store it reads the clock: a process that was paused for longer than its lease
// learns from its first Err that the lock is lost, before any timer has run.
func (h *Held) Err() error {
	h.notice()
	return h.err()
}

// err is Err as far as this node has noticed.
func (h *Held) err() error {
	if reason := h.over.Load(); reason != nil {
		return *reason
	}
	return nil
}

// notice ends the hold if the lease has ended. A timer does that too, but it may be late.
func (h *Held) notice() {
	s := h.lock.shard
	if h.over.Load() == nil && !s.leased() {
		s.expire()
	}
}

// Suspended reports whether the lease of this node is late to be renewed, as when the
// store does not answer: the lock is still held, and is lost soon if the store goes on
// not to answer. It is false without Config.Store.
func (h *Held) Suspended() bool {
	return h.Err() == nil && LeaseState(h.lock.shard.lease.Load()) == LeaseLate
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
func (h *Held) Context() context.Context {
	mu := &h.lock.shard.mu
	mu.Lock()
	defer mu.Unlock()
	return h.own().Context
}

// own returns the handle's own context, and makes it if need be.
func (h *Held) own() *holdContext {
	if c, ok := h.ctx.(*holdContext); ok {
		return c
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(h.ctx))
	if err := h.err(); err != nil {
		cancel(err)
	}
	c := &holdContext{Context: ctx, cancel: cancel}
	h.ctx = c
	return c
}

// Release gives the lock back. It ends this grant and never another: if the hold is
// already over, Release changes nothing. It returns an [ErrLost] if the lock was
// lost, and otherwise nil.
func (h *Held) Release() error {
	h.notice()
	if ls := h.lock.shard.locks; ls.cfg.Observer != nil {
		var hold Hold
		h.release(&hold)
		ls.tell(hold)
	} else {
		h.release(nil)
	}
	switch reason := h.over.Load(); reason {
	case nil:
		return dmutex.Misuse("Release of a copied Held")
	case released:
		return nil
	default:
		return *reason
	}
}

func (h *Held) release(told *Hold) {
	s := h.lock.shard
	s.mu.Lock()
	if h.lock.held == h {
		h.lock.release(released, told)
	}
	s.mu.Unlock()
	s.mail.Flush()
}

// work notes that a function runs under the hold until rest is called, unless the hold
// is over already. self is the number under which this node holds the lock.
func (h *Held) work() (self dmutex.NodeID, working bool) {
	s := h.lock.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.over.Load() != nil {
		return dmutex.None, false
	}
	if s.working == nil {
		s.working = make(map[*Held]struct{})
	}
	s.working[h] = struct{}{}
	return s.start.Self, true
}

func (h *Held) rest() {
	s := h.lock.shard
	s.mu.Lock()
	delete(s.working, h)
	s.mu.Unlock()
	select {
	case s.rested <- struct{}{}:
	default:
	}
}

// lossError is an ErrLost with its cause.
type lossError struct{ cause error }

func (e *lossError) Error() string   { return ErrLost.Error() + ": " + bare(e.cause) }
func (e *lossError) Unwrap() []error { return []error{ErrLost, e.cause} }
