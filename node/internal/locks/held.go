package locks

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
)

// A Held is the handle of a grant: a lock.Held, and what package node needs besides.
type Held struct {
	lock  *lock
	fence uint64
	since int64               // when it was granted, by Mail.Now
	why   atomic.Pointer[End] // it is no longer held; nil while it is
	ctx   context.Context     // Join's, and a holdContext once one is needed; guarded by the mutex of the Table
}

// A holdContext ends with the hold.
type holdContext struct {
	context.Context
	cancel context.CancelCauseFunc
	asked  context.Context // has ended when Ask was called
	ask    context.CancelFunc
	owner  any // see Own
}

// A Hold is the outcome of a grant.
type Hold struct {
	Lock  string
	Err   error // nil if it was released, else why it was lost
	Fence uint64
	Took  time.Duration
}

func (h *Held) outcome() Hold {
	hold := Hold{Lock: h.lock.name, Fence: h.fence, Took: time.Duration(h.lock.table.cfg.Mail.Now() - h.since)}
	if end := h.why.Load(); end != released {
		hold.Err = end
	}
	return hold
}

// end ends the hold. The first reason stays: a hold may be lost first and released later.
func (h *Held) end(why *End) {
	if !h.why.CompareAndSwap(nil, why) {
		return
	}
	if c, ok := h.ctx.(*holdContext); ok {
		c.cancel(why)
	}
}

// Fence returns the number of the grant.
func (h *Held) Fence() uint64 { return h.fence }

// Lock returns the name of the lock.
func (h *Held) Lock() string { return h.lock.name }

// Err returns why the hold has ended, nil while it has not.
func (h *Held) Err() error {
	h.notice()
	return h.Noticed()
}

// Until returns until when the lease of this node runs, as of now; the zero time if it has none.
func (h *Held) Until() time.Time {
	t := h.lock.table
	switch {
	case t.cfg.Clock == nil:
		return time.Time{}
	case h.Err() != nil:
		return time.Now()
	}
	now, at := time.Now(), t.cfg.Clock() // in this order, so that a pause between them makes it no later
	return now.Add(time.Duration(max(t.until.Load(), at) - at))
}

// Suspended reports whether the renewal of the lease is late.
func (h *Held) Suspended() bool { return h.Err() == nil && h.lock.table.cfg.Up.Late() }

// Released reports whether the hold has ended with a Release.
func (h *Held) Released() bool { return h.why.Load() == released }

// Noticed is Err as far as this node has noticed.
func (h *Held) Noticed() error {
	if why := h.why.Load(); why != nil {
		return why
	}
	return nil
}

// notice ends the hold if the time of SetUntil has come.
func (h *Held) notice() {
	if t := h.lock.table; h.why.Load() == nil && !t.leased() {
		t.cfg.Up.Expired()
	}
}

// Context returns a context that ends with the hold, and has the values of Join's.
func (h *Held) Context() context.Context { return h.own(nil).Context }

// Asked returns a channel that is closed when Ask was called for this hold.
func (h *Held) Asked() <-chan struct{} { return h.own(nil).asked.Done() }

// Own records who owns the hold.
func (h *Held) Own(owner any) { h.own(owner) }

func (h *Held) own(owner any) *holdContext {
	mu := &h.lock.table.mu
	mu.Lock()
	defer mu.Unlock()
	c := h.context()
	if owner != nil {
		c.owner = owner
	}
	return c
}

// context returns the handle's own context, and makes it if need be.
func (h *Held) context() *holdContext {
	if c, ok := h.ctx.(*holdContext); ok {
		return c
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(h.ctx))
	if err := h.Noticed(); err != nil {
		cancel(err)
	}
	c := &holdContext{Context: ctx, cancel: cancel}
	c.asked, c.ask = context.WithCancel(context.Background())
	h.ctx = c
	return c
}

// Release gives the lock back. It returns why it was lost, or a misuse if the handle is a copy.
//
// An answer or a token leaves before it returns. A RELEASE alone leaves with the next request of this
// node, or another goroutine sends it soon. That saves one of two writes, and one of two switches
// between processes.
func (h *Held) Release() error {
	h.notice()
	t := h.lock.table
	var hold Hold
	t.mu.Lock()
	before := t.sent
	ended := h.lock.held == h
	if ended {
		hold = h.lock.release(released)
	}
	before[dmutex.Release] = t.sent[dmutex.Release]
	alone := before == t.sent
	t.mu.Unlock()
	if alone {
		t.cfg.Mail.FlushSoon()
	} else {
		t.cfg.Mail.Flush()
	}
	if ended {
		t.cfg.Up.Ended(hold)
	}
	switch why := h.why.Load(); why {
	case nil:
		return dmutex.Misuse("Release of a copied Held")
	case released:
		return nil
	default:
		return why
	}
}

// Work notes that a function runs under the hold until Rest is called, unless the hold has ended
// already. client is empty, or the name of the client for which it runs. self is the number under
// which this node holds the lock.
func (h *Held) Work(client string) (self dmutex.NodeID, working bool) {
	t := h.lock.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if h.why.Load() != nil {
		return dmutex.None, false
	}
	t.working[h] = client
	return t.start.Self, true
}

// Rest notes that the function of Work has ended.
func (h *Held) Rest() {
	t := h.lock.table
	t.mu.Lock()
	delete(t.working, h)
	t.mu.Unlock()
	select {
	case t.rested <- struct{}{}:
	default:
	}
}

// Owner returns the owner of a hold, nil if it has none, and whether this node holds the lock.
func (t *Table) Owner(name string) (owner any, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.locks[name]
	if l == nil || l.machine == nil || l.held == nil {
		return nil, false
	}
	if c, ok := l.held.ctx.(*holdContext); ok {
		owner = c.owner
	}
	return owner, true
}

// Ask tells the holder that the lock is wanted, if it is at this node.
func (t *Table) Ask(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil && l.held != nil {
		l.held.context().ask()
	}
}
