// Package locktest is a lock in memory, for tests of code that uses a [lock.Mutex]:
//
//	nightly := locktest.New("nightly")
//	nightly.Fail(errors.New("no network"))
//	require.Error(t, backup(t.Context(), nightly))
//
// It excludes goroutines, as a real lock does. The test decides when the lock is lost or suspended,
// and when Acquire fails. With a real lock that takes an outage. A Lock starts no goroutine, and
// runs in a testing/synctest bubble, too.
package locktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mistake"
	"github.com/dmutex/dmutex/lock"
)

// lease is longer than any test. Suspend shortens it.
const lease = 48 * 365 * 24 * time.Hour

// A Lock is a lock in memory, and a [lock.Sharable]. Its fences are 1, 2 and so on. A lock that was
// lost is free at once.
type Lock struct {
	named hold.Sharable
	clock *clock.Clock

	mu      sync.Mutex
	fence   uint64
	held    []*held // the present grants: one, or several that share
	queue   []*held // calls, in their order
	fail    error
	changed chan struct{} // closed when a waiter is to look again
	history []string
}

// New returns a lock that nobody holds.
func New(name string) *Lock {
	l := &Lock{clock: clock.New(), changed: make(chan struct{})}
	l.named.Mutex = hold.Mutex{Package: "locktest", Lock: name, Take: l.acquire}
	return l
}

var errMade = mistake.Misuse("the lock was not made by New")

// use returns the lock as one of the zero value's error, if New has not made it.
func (l *Lock) use() *hold.Sharable {
	if l == nil || l.clock == nil {
		return &hold.Sharable{Mutex: hold.Mutex{Package: "locktest", Take: func(context.Context, bool, bool) (lock.Held, error) { return nil, errMade }}}
	}
	return &l.named
}

// Name implements [lock.Mutex].
func (l *Lock) Name() string { return l.use().Name() }

// Acquire implements [lock.Mutex].
func (l *Lock) Acquire(ctx context.Context) (lock.Held, error) { return l.use().Acquire(ctx) }

// TryAcquire implements [lock.Mutex].
func (l *Lock) TryAcquire(ctx context.Context) (lock.Held, error) { return l.use().TryAcquire(ctx) }

// Do implements [lock.Mutex].
func (l *Lock) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error {
	return l.use().Do(ctx, f)
}

// Shared implements [lock.Sharable].
func (l *Lock) Shared() lock.Mutex { return l.use().Shared() }

func (l *Lock) acquire(ctx context.Context, try, shares bool) (lock.Held, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &held{l: l, shares: shares}
	l.queue = append(l.queue, h)
	defer func() {
		l.queue = slices.DeleteFunc(l.queue, func(o *held) bool { return o == h })
		l.change()
	}()
	waits := func() bool { return l.queue[0] != h || len(l.held) > 0 && !(shares && l.held[0].shares) }
	for waits() && !try && l.fail == nil && ctx.Err() == nil {
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		l.mu.Lock()
	}
	switch {
	case ctx.Err() != nil:
		return nil, hold.ContextError(ctx)
	case l.fail != nil:
		l.note("failed: %v", l.fail)
		return nil, l.fail
	case waits():
		l.note("busy")
		return nil, lock.ErrBusy
	}
	l.fence++
	h.Hold = hold.New(ctx, l.clock, leases.From(l.clock.Now(), int64(lease)), l.fence, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.lost(h, errors.New("its lease has ended"))
	})
	l.held = append(l.held, h)
	how := "acquired"
	if shares {
		how = "shared"
	}
	l.note("%d %s", l.fence, how)
	return h, nil
}

// Lose takes the lock from its holder, or from all that share it, if there are any. [lock.Held.Err] wraps
// why, if that is not nil.
func (l *Lock) Lose(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range slices.Clone(l.held) {
		h.End(l.lost(h, why))
	}
}

// Suspend acts as if the renewal of the holder's lease were late, if there is a holder. The lock is
// lost after the time left, at [lock.Held.Until], unless Resume is called.
func (l *Lock) Suspend(left time.Duration) { l.extend("suspended", left) }

// Resume ends a suspension.
func (l *Lock) Resume() { l.extend("resumed", lease-lease/leases.Margin) }

func (l *Lock) extend(what string, left time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.held {
		l.note("%d %s", h.Fence(), what)
		h.Extend(leases.From(l.clock.Now()+int64(left+lease/leases.Margin-lease), int64(lease)))
	}
}

// Fail makes Acquire and TryAcquire fail until it is called with nil; calls that wait fail, too.
// The holder keeps the lock.
func (l *Lock) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
	l.change()
}

// History returns what has happened, such as "1 acquired", "1 suspended", "1 lost: no network", "2
// acquired", "2 released", "3 shared", "busy", "failed: no network". The numbers are fences.
func (l *Lock) History() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.history)
}

func (l *Lock) note(format string, args ...any) {
	l.history = append(l.history, fmt.Sprintf(format, args...))
}

func (l *Lock) change() {
	if l.changed != nil {
		close(l.changed)
	}
	l.changed = make(chan struct{})
}

// lost frees the lock of this grant, and returns the error of the grant.
func (l *Lock) lost(h *held, why error) error {
	l.free(h, fmt.Sprintf("lost: %v", why))
	if why == nil {
		return l.named.Error(lock.ErrLost)
	}
	return l.named.Error(fmt.Errorf("%w: %w", lock.ErrLost, why))
}

func (l *Lock) free(h *held, how string) {
	if i := slices.Index(l.held, h); i >= 0 {
		l.note("%d %s", h.Fence(), how)
		l.held = slices.Delete(l.held, i, i+1)
		l.change()
	}
}

// A held is the handle that Acquire returns, and before that its call.
type held struct {
	*hold.Hold // nil until it is granted
	l          *Lock
	shares     bool
}

func (h *held) Release() error {
	lost := h.Released(h.l.named.Error(lock.ErrReleased))
	h.l.mu.Lock()
	defer h.l.mu.Unlock()
	h.l.free(h, "released")
	return lost
}
