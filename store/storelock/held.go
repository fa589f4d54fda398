package storelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// A Held is the handle of a lock that is held, from a successful Acquire to Release. Any
// goroutine that has it may release it. Its methods are safe for concurrent use. It must not
// be copied.
type Held struct {
	a      *attempt
	fence  uint64
	until  atomic.Int64 // by the clock of the Lock
	over   atomic.Pointer[error]
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// errLease is the cause of a loss.
var errLease = errors.New("the lease was not renewed in time")

// Fence returns the number of this grant. Of any two grants of one lock the later has the
// higher number.
func (h *Held) Fence() uint64 { return h.fence }

// Context returns a context that ends with the hold. [context.Cause] is then the first error that
// Err returned. The context has the values of Acquire's context, but not its deadline or
// cancellation.
func (h *Held) Context() context.Context { return h.ctx }

// Until returns until when the lock is surely held. Each renewal moves it.
func (h *Held) Until() time.Time {
	return time.Now().Add(time.Duration(h.until.Load() - h.a.l.clock.Now()))
}

// Err says whether the work may go on. It returns nil while the lock is held, [ErrReleased] after
// Release, and an [ErrLost] that says why if the lock was lost. It reads the clock: a process
// that was paused for longer than its lease learns of it from its first Err.
func (h *Held) Err() error {
	if h.over.Load() == nil && h.a.l.clock.Now() >= h.until.Load() {
		h.a.mu.Lock()
		why := h.a.reason()
		h.a.mu.Unlock()
		h.lose(why)
	}
	if reason := h.over.Load(); reason != nil {
		return *reason
	}
	return nil
}

// File returns a file for a child process to inherit. Then, if this process dies, the lock is
// not free before the child has died, too. It is nil if the store cannot do that; filestore
// can, but not on Windows.
func (h *Held) File() *os.File {
	if h.a.life == nil {
		return nil
	}
	return h.a.life.File()
}

// Release gives the lock back. It waits until the store has confirmed that, and at most for a
// lease: then others replace this process as if it had crashed. It ends this grant and never
// another. It returns an [ErrLost] if the lock was lost, and otherwise nil. Release a lock
// that was lost, too: the others may wait for it.
func (h *Held) Release() error {
	err := h.Err()
	if err == nil {
		h.end(ErrReleased)
		err = h.Err()
	}
	h.a.release()
	<-h.a.over
	if errors.Is(err, ErrReleased) {
		return nil
	}
	return err
}

func (h *Held) lose(why error) { h.end(fmt.Errorf("%w: %w", ErrLost, why)) }

// end marks the hold as over. The first reason stays.
func (h *Held) end(reason error) {
	if h.over.CompareAndSwap(nil, &reason) {
		h.cancel(reason)
	}
}

// renewed notes that the lock is held for longer. It is guarded by the mutex of the attempt.
func (h *Held) renewed(now, until int64) {
	h.until.Store(until)
	if left := time.Duration(until - now); h.timer == nil {
		h.timer = time.AfterFunc(left, h.expire)
	} else {
		h.timer.Reset(left)
	}
}

// expire ends the hold if its time is over.
func (h *Held) expire() {
	if errors.Is(h.Err(), ErrLost) {
		h.a.nudge()
	}
}
