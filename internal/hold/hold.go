// Package hold has what locks share: the handle of those with a lease, Do, and an error.
package hold

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/lock"
)

// A Hold is a grant whose lease runs by a clock. It has the methods of a [lock.Held] except Release.
// It is lost a margin before the end: see package leases.
type Hold struct {
	clock  *clock.Clock
	fence  uint64
	lapsed func() error // nil if the end of the lease does not end the hold
	ctx    context.Context
	cancel context.CancelCauseFunc
	term   atomic.Pointer[leases.Term]
	timer  *time.Timer
}

// New returns the hold of a grant whose lease has this term, which runs. Its context has the values of
// ctx. When the term has ended, it calls lapsed, perhaps more than once, and is lost for that reason. If
// lapsed is nil the hold is only suspended then.
func New(ctx context.Context, c *clock.Clock, term leases.Term, fence uint64, lapsed func() error) *Hold {
	h := &Hold{clock: c, fence: fence, lapsed: lapsed}
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	h.term.Store(&term)
	h.timer = time.AfterFunc(c.Span(h.left()), h.lapse)
	return h
}

func (h *Hold) left() time.Duration { return time.Duration(h.term.Load().Until() - h.clock.Now()) }

// Extend says which term the lease has now. It must not be called twice at a time.
func (h *Hold) Extend(term leases.Term) {
	if *h.term.Swap(&term) != term {
		h.timer.Reset(h.clock.Span(h.left()))
	}
}

// End ends the hold for this reason, unless it has ended before.
func (h *Hold) End(reason error) {
	h.timer.Stop()
	h.cancel(reason)
}

// Released ends the hold for this reason, which wraps [lock.ErrReleased], and returns nil, or
// the first reason if the hold was lost before.
func (h *Hold) Released(reason error) (lost error) {
	if h.Err() == nil {
		h.End(reason)
	}
	if err := h.Err(); !errors.Is(err, lock.ErrReleased) {
		return err
	}
	return nil
}

// Over reports whether the hold has been ended, and does not read the clock.
func (h *Hold) Over() bool { return h.ctx.Err() != nil }

// lapse ends the hold if its lease has ended. It leaves the timer alone, which New may not have set yet.
func (h *Hold) lapse() {
	if h.lapsed != nil && !h.Over() && h.left() <= 0 {
		h.cancel(h.lapsed())
	}
}

// Err returns why the hold has ended, and nil while it has not.
func (h *Hold) Err() error {
	h.lapse()
	return context.Cause(h.ctx)
}

// Fence returns the fence of the grant.
func (h *Hold) Fence() uint64 { return h.fence }

// Context returns a context that ends with the hold.
func (h *Hold) Context() context.Context { return h.ctx }

// Until returns until when the lock is surely held, the zero time if its lease does not end it.
func (h *Hold) Until() time.Time {
	if h.lapsed == nil {
		return time.Time{}
	}
	now, left := time.Now(), h.left() // in this order, so that a pause between them makes it no later
	if h.Over() {
		left = min(left, 0)
	}
	return now.Add(h.clock.Span(left))
}

// Suspended reports whether the renewal is late.
func (h *Hold) Suspended() bool {
	return h.Err() == nil && h.term.Load().State(h.clock.Now()) != leases.Valid
}

// A Trouble is what stands in the way of a lock at the moment, for its errors.
type Trouble struct{ err atomic.Pointer[error] }

// Note says what stands in the way now, nil if nothing does.
func (t *Trouble) Note(err error) { t.err.Store(&err) }

// Err returns what was noted last.
func (t *Trouble) Err() error {
	if err := t.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Add adds it to an error.
func (t *Trouble) Add(err error) error {
	if trouble := t.Err(); trouble != nil {
		return fmt.Errorf("%w: %w", err, trouble)
	}
	return err
}

type watched struct{}

// Watch returns a context for one Acquire, which stores its Trouble there when it begins to wait.
func Watch(ctx context.Context, there *atomic.Pointer[Trouble]) context.Context {
	return context.WithValue(ctx, watched{}, there)
}

// Show shows the trouble of an Acquire to the watcher of its context, if there is one.
func Show(ctx context.Context, t *Trouble) {
	if there, ok := ctx.Value(watched{}).(*atomic.Pointer[Trouble]); ok {
		there.Store(t)
	}
}

// ContextError is the error of a context that has ended, or is nil. It wraps the cause, too, if there is
// one, such as the signal that ended the context.
func ContextError(ctx context.Context) error {
	if ctx == nil {
		return mistake.Misuse("the context is nil: pass context.Background()")
	}
	err, cause := ctx.Err(), context.Cause(ctx)
	if err == nil || errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Outcome returns the Outcome of the event of a wait that has ended with this error.
func Outcome(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, lock.ErrBusy):
		return "busy"
	}
	return "failed"
}

// Tell calls the function of an Observer with how a wait has ended. If it was granted, the event gets the
// fence of the handle, and if the function panics, the lock is given back: nobody else will.
func Tell(wait func(lock.Event), e lock.Event, h lock.Held) {
	if e.Err == nil {
		e.Fence = h.Fence()
	}
	told := false
	defer func() {
		if !told && e.Err == nil {
			_ = h.Release()
		}
	}()
	wait(e)
	told = true
}

// A Mutex is a [lock.Mutex] of a package, whose errors it names.
type Mutex struct {
	Package, Lock string
	Shares        bool // its callers share the lock
	Take          func(ctx context.Context, try, shares bool) (lock.Held, error)
	Seen          func(called time.Time, h lock.Held, err error) // gets the outcome, if it is not nil
}

// A Sharable is a Mutex that is a [lock.Sharable].
type Sharable struct{ Mutex }

// Shared implements [lock.Sharable].
func (m *Sharable) Shared() lock.Mutex {
	shared := *m
	shared.Shares = true
	return &shared
}

// Name implements [lock.Mutex].
func (m *Mutex) Name() string { return m.Lock }

// Acquire implements [lock.Mutex].
func (m *Mutex) Acquire(ctx context.Context) (lock.Held, error) { return m.take(ctx, false) }

// TryAcquire implements [lock.Mutex].
func (m *Mutex) TryAcquire(ctx context.Context) (lock.Held, error) { return m.take(ctx, true) }

// ErrNoFunction is for a nil function.
var ErrNoFunction = mistake.Misuse("the function is nil: there is nothing to run under the lock")

// Do implements [lock.Mutex].
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error {
	if f == nil {
		return m.Error(ErrNoFunction)
	}
	h, err := m.take(ctx, false)
	if err != nil {
		return err
	}
	return Run(ctx, h, h.Release, f)
}

func (m *Mutex) take(ctx context.Context, try bool) (h lock.Held, err error) {
	called := time.Now()
	if err = ContextError(ctx); err == nil {
		h, err = m.Take(ctx, try, m.Shares)
	}
	if err != nil {
		h, err = nil, m.Error(err)
	}
	if m.Seen != nil {
		m.Seen(called, h, err)
	}
	return h, err
}

// Error names the package and the lock in an error.
func (m *Mutex) Error(err error) error { return fmt.Errorf("%s: lock %q: %w", m.Package, m.Lock, err) }

// Run is Do with a lock that is held already. release is Release of h, with errors as Do returns them.
func Run(ctx context.Context, h lock.Held, release func() error, f func(ctx context.Context, fence uint64) error) (err error) {
	defer func() {
		if lost := release(); lost != nil {
			err = errors.Join(err, lost)
		}
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(h.Context(), func() { cancel(context.Cause(h.Context())) })()
	return f(ctx, h.Fence())
}
