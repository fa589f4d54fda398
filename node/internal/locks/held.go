package locks

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	api "github.com/dmutex/dmutex/lock"
)

// A Held is the handle of a grant: a lock.Held, and what package node needs besides.
type Held struct {
	lock  *lock
	fence uint64
	since clock.Steady          // when it was granted
	why   atomic.Pointer[Cause] // it is no longer held; nil while it is
	ctx   context.Context       // Join's, and a *holdContext once one is needed; guarded by the mutex of the Table
}

// A holdContext ends with the hold.
type holdContext struct {
	context.Context
	cancel context.CancelCauseFunc
	asked  context.Context // has ended when Ask was called
	ask    context.CancelFunc
	owner  any // see Own
}

// An Event is the outcome of a grant.
type Event = api.Event

func (h *Held) outcome() Event {
	e := Event{Lock: h.lock.name, Fence: h.fence, Took: h.lock.table.cfg.Mail.Now().Sub(h.since), Outcome: "released"}
	if why := h.why.Load(); why != released {
		e.Err, e.Outcome = why, "lost"
	}
	return e
}

// end ends the hold. The first reason stays: a hold may be lost first and released later.
func (h *Held) end(why *Cause) {
	if !h.why.CompareAndSwap(nil, why) {
		return
	}
	if own := h.own(); own != nil {
		own.cancel(why)
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

// Until returns until when the lease of this node runs, as of now; the zero time if it has none. For a hold
// that was lost it is the time of the loss, or the end of the lease if that was before.
func (h *Held) Until() time.Time {
	t := h.lock.table
	switch {
	case t.cfg.Clock == nil:
		return time.Time{}
	case h.Err() != nil:
		if at := h.why.Load().at; !at.IsZero() {
			return at
		}
		return time.Now()
	}
	now, left := time.Now(), t.cfg.Mail.Clock().Span(t.Left()) // in this order, so that a pause between them makes it no later
	return now.Add(left)
}

// Suspended reports whether the renewal of the lease is late.
func (h *Held) Suspended() bool {
	t := h.lock.table
	return h.Err() == nil && t.cfg.Clock != nil && t.lease.Load().State(t.cfg.Clock()) == leases.Late
}

// Released reports whether the hold has ended with a Release.
func (h *Held) Released() bool { return h.why.Load() == released }

// Noticed is Err as far as this node has noticed.
func (h *Held) Noticed() error {
	if why := h.why.Load(); why != nil {
		return why
	}
	return nil
}

// notice ends the hold if the term has ended.
func (h *Held) notice() {
	if t := h.lock.table; h.why.Load() == nil && !t.leased() {
		t.cfg.Up.Expired()
	}
}

// Context returns a context that ends with the hold, and has the values of Join's.
func (h *Held) Context() context.Context { return h.owned(nil).Context }

// Asked returns a channel that is closed when Ask was called for this hold, or when it shares and a
// request waits that does not.
func (h *Held) Asked() <-chan struct{} { return h.owned(nil).asked.Done() }

// Own records who owns the hold.
func (h *Held) Own(owner any) { h.owned(owner) }

func (h *Held) owned(owner any) *holdContext {
	mu := &h.lock.table.mu
	mu.Lock()
	defer mu.Unlock()
	c := h.context()
	if owner != nil {
		c.owner = owner
	}
	return c
}

// own returns the handle's own context, nil until it is needed.
func (h *Held) own() *holdContext {
	own, _ := h.ctx.(*holdContext)
	return own
}

// context returns the handle's own context, and makes it if need be.
func (h *Held) context() *holdContext {
	if own := h.own(); own != nil {
		return own
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(h.ctx))
	if err := h.Noticed(); err != nil {
		cancel(err)
	}
	own := &holdContext{Context: ctx, cancel: cancel}
	own.asked, own.ask = context.WithCancel(context.Background())
	h.ctx = own
	if h.lock.has(h) && h.lock.wanted() {
		own.ask()
	}
	return own
}

// Release gives the lock back. It returns why it was lost, or a misuse if the handle is a copy.
//
// An answer or a token leaves before it returns. A RELEASE alone leaves with the next request of this
// node, or another goroutine sends it soon. That saves one of two writes, and one of two switches
// between processes.
func (h *Held) Release() error {
	h.notice()
	t := h.lock.table
	t.mu.Lock()
	before := t.sent
	e, ended := h.lock.leave(h, released)
	before[dmutex.Release] = t.sent[dmutex.Release]
	alone := before == t.sent
	t.mu.Unlock()
	if alone {
		t.cfg.Mail.FlushSoon()
	} else {
		t.cfg.Mail.Flush()
	}
	if ended && t.cfg.Tell != nil {
		t.cfg.Tell(e)
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

// A use is why Close waits for a hold: a function runs under it, or it is lent to a client.
type use struct {
	lent, lost bool // lost while it was lent
	client     string
	key        string       // of the loan
	over       clock.Steady // if it was lost, from when on the client surely holds it no more
}

// Work notes that a function runs under the hold until Rest is called, unless the hold has ended
// already. self is the number under which this node holds the lock.
func (h *Held) Work() (self dmutex.NodeID, working bool) { return h.use(use{}) }

// Lend notes that the hold is for a client, as Work. The client's word releases it; without that,
// Return does. The key is that of the loan.
func (h *Held) Lend(client, key string) (self dmutex.NodeID, lent bool) {
	return h.use(use{lent: true, client: client, key: key})
}

// sharedKey is the key of what is lent to share it, which no client can take to another member.
const sharedKey = "-"

// Loans returns what is lent, in the order of the locks.
func (t *Table) Loans() (loans []membership.Loan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, u := range t.uses {
		switch {
		case !u.lent:
		case h.lock.shared:
			loans = append(loans, membership.Loan{Lock: h.lock.name, Key: sharedKey})
		default:
			loans = append(loans, membership.Loan{Lock: h.lock.name, Key: u.key})
		}
	}
	slices.SortFunc(loans, func(a, b membership.Loan) int { return strings.Compare(a.Lock, b.Lock) })
	return slices.Compact(loans)
}

func (h *Held) use(u use) (self dmutex.NodeID, holds bool) {
	t := h.lock.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if holds = h.why.Load() == nil; holds {
		t.uses[h] = u
	}
	return t.start.Self, holds
}

// Rest notes that the function of Work has ended.
func (h *Held) Rest() {
	t := h.lock.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unused(h)
}

func (t *Table) unused(h *Held) {
	delete(t.uses, h)
	select {
	case t.rested <- struct{}{}:
	default:
	}
}

// repaid notes that a hold is given back.
func (t *Table) repaid(h *Held) {
	if t.uses[h].lent {
		t.unused(h)
	}
}

// Lose ends a hold that is lent, for the reason given: the client's session has ended without its word.
// The lock stays taken until Return.
func (h *Held) Lose(why error) {
	mu := &h.lock.table.mu
	mu.Lock()
	defer mu.Unlock()
	h.lose(loss(why), h.lock.table.cfg.Mail.Now())
}

// lose ends a hold. If it is lent, its client surely holds it no more from then on.
func (h *Held) lose(why *Cause, over clock.Steady) {
	t := h.lock.table
	if u := t.uses[h]; u.lent && !u.lost {
		u.lost, u.over = true, over
		t.uses[h] = u
		t.owed = append(t.owed, h)
	}
	h.end(why)
}

// Owner returns the owner of a hold, nil if it has none, and whether this node holds the lock.
func (t *Table) Owner(name string) (owner any, held bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.locks[name]
	if l == nil || !t.acting || !l.isHeld() {
		return nil, false
	}
	if own := l.held()[0].own(); own != nil {
		owner = own.owner
	}
	return owner, true
}

// Ask tells the holder that the lock is wanted, if it is at this node.
func (t *Table) Ask(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil {
		for _, h := range l.held() {
			h.context().ask()
		}
	}
}
