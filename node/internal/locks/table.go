// Package locks has the locks of one node: a machine for each lock in use, and the
// goroutines that hold it or wait for it.
//
// A [Table] runs the machines of one view at a time. It knows the view's epoch, a time until
// which it may grant, and the mail. Its user knows the members and extends that time, and calls
// Freeze, Act and Lapse.
//
// Every method may be called by any goroutine. One mutex guards a Table. No function of the
// application runs under it but the algorithm's. Each method for callers, but none for the event
// path, calls Mail.Flush or FlushSoon when it has released the mutex: then frames leave.
package locks

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/session"
	"github.com/dmutex/dmutex/trace"
)

// Config is what a Table is made of.
type Config struct {
	Algorithm dmutex.Algorithm
	Mail      *mail.Mail
	Clock     func() int64    // of the term; nil if grants have no end
	Trace     *trace.Recorder // may be nil
	Tell      func(Event)     // of a grant that its holder has released; may be nil
	Up        Up
}

// Up takes what a Table cannot handle itself. Trouble and Refused are called under the mutex of
// the Table.
type Up interface {
	// Trouble asks for another view in place of that of the epoch.
	Trouble(epoch uint64, err error)

	// Refused reports what no correct peer sends.
	Refused(peer dmutex.NodeID, err error)

	// Expired reports that the term has ended, as a holder has found out. When it returns, Lapse
	// was called.
	Expired()
}

// A lease is the lease of a node, by both clocks: a leap of Config.Clock ends the term, and what clients of the
// node were confirmed goes on.
type lease struct {
	leases.Term              // by Config.Clock: nothing is granted after it
	lent        clock.Steady // no client was confirmed a hold for longer than until then
}

// A Table is all locks of a node.
type Table struct {
	cfg Config

	ended  context.Context         // nothing more is granted once it has ended
	cancel context.CancelCauseFunc // the first cause stays

	lease  atomic.Pointer[lease]
	halted atomic.Bool                   // nothing is granted for now
	parked atomic.Bool                   // a lock waits for Resume
	lapsed atomic.Pointer[chan struct{}] // closed at the next lapse
	rested chan struct{}                 // see Rested

	mu      sync.Mutex
	joining Waiter // scratch of Join
	locks   map[string]*lock
	epoch   uint64       // of the view that is installed; 0 before the first
	acting  bool         // the machines of the view may be born
	acted   clock.Steady // since when
	start   dmutex.Start // of all of them, but for Holder and Home; Clock and Known are the highest of those that were forgotten

	holders map[string][]membership.Holder // reported in the view, and no machine was born from it yet
	past    *membership.Past               // of the view
	cleared uint64                         // see Clear
	drainAt clock.Steady                   // see Clear
	fresh   map[newborn]uint64             // what new machines of free locks exclude
	early   []early                        // messages of this view, before it acts, and of later ones
	room    int                            // that they take
	latest  uint64                         // epoch among them
	dropped bool                           // one of them found no room since a view last acted

	resting        [keepResting]*lock // may be forgotten; some are in use again
	oldest         int                // where to look for one to forget
	granted        uint64
	sent, received [dmutex.Kinds]uint64
	message        []byte        // scratch
	uses           map[*Held]use // of holds that Close waits for, also lost ones
}

// New returns an empty Table, which acts in no view.
func New(cfg Config) *Table {
	t := &Table{
		cfg: cfg, rested: make(chan struct{}, 1), locks: make(map[string]*lock),
		fresh: make(map[newborn]uint64), uses: make(map[*Held]use),
	}
	t.ended, t.cancel = context.WithCancelCause(context.Background())
	t.SetTerm(leases.Term{})
	lapsed := make(chan struct{})
	t.lapsed.Store(&lapsed)
	return t
}

// End ends all granting and all waits, for the reason given. The first reason stays.
func (t *Table) End(why error) {
	t.cancel(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.locks {
		l.fail(why)
	}
}

// Why returns why nothing more is granted, nil while all is well.
func (t *Table) Why() error {
	if t.ended.Err() == nil { // which takes no mutex
		return nil
	}
	return context.Cause(t.ended)
}

// Ended is closed by End.
func (t *Table) Ended() <-chan struct{} { return t.ended.Done() }

// SetTerm sets the term after which nothing is granted. After a later one, call Resume. It must not be
// called twice at a time.
func (t *Table) SetTerm(term leases.Term) {
	next := lease{Term: term}
	if was := t.lease.Load(); was != nil {
		next.lent = was.lent
	}
	if term.Runs() { // Config.Clock first, so that a pause between them makes it no earlier
		left := time.Duration(term.Until() - t.cfg.Clock())
		next.lent = clock.Latest(next.lent, t.cfg.Mail.Now().Add(left))
	}
	t.lease.Store(&next)
}

// Term returns that term.
func (t *Table) Term() leases.Term { return t.lease.Load().Term }

// Left returns how long until its end, 0 if nothing more is granted. A Table that has lost
// what it held tells of no later time before it has closed Lapsed.
func (t *Table) Left() time.Duration {
	if t.Why() != nil {
		return 0
	}
	now := t.cfg.Clock()
	return time.Duration(max(t.lease.Load().Until(), now) - now)
}

// leased reports whether the term has not ended yet: rule 5.3 of package membership, at each grant.
func (t *Table) leased() bool { return t.cfg.Clock == nil || t.cfg.Clock() < t.lease.Load().Until() }

// grants reports whether anything may be granted at the moment.
func (t *Table) grants() bool { return !t.halted.Load() && t.leased() }

// Halt lets nothing be granted until Resume is called.
func (t *Table) Halt() { t.halted.Store(true) }

// Resume ends a Halt, and lets the locks go on that waited for that, or for a later term.
func (t *Table) Resume() {
	t.halted.Store(false)
	if !t.parked.Swap(false) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.all() {
		l.settle()
	}
}

// all returns all locks. Some may be forgotten while they are gone through.
func (t *Table) all() []*lock { return slices.Collect(maps.Values(t.locks)) }

// Freeze ends the machines of all older views. It returns what this node holds and, if grants
// have an end and the last view has acted here, what it knows of that. start is what the
// machines of the view begin with, but for the holder.
func (t *Table) Freeze(epoch uint64, start dmutex.Start) (holds []membership.Hold, word *membership.Word) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.acting && t.cfg.Clock != nil {
		word = t.word()
	}
	t.epoch, t.acting = epoch, false
	t.start = start
	clear(t.resting[:])
	t.holders, t.past = nil, nil
	for name, l := range t.locks {
		l.drop()
		l.listed, l.used = false, false
		l.waiters = slices.DeleteFunc(l.waiters, func(w *Waiter) bool {
			if !w.Try && w.Claims == nil {
				return false
			}
			w.finish(nil, ErrViewChanged)
			return true
		})
		switch {
		case l.isHeld():
			holds = append(holds, membership.Hold{Lock: name, Fence: l.held[0].fence, Shared: l.shared})
		case len(l.waiters) == 0:
			delete(t.locks, name)
		}
	}
	t.rehandle()
	return holds, word
}

// Act lets the machines of the view be born, with the holders that were reported. What
// former members may hold waits for Clear.
func (t *Table) Act(epoch uint64, holders []membership.Holder, past *membership.Past) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.epoch != epoch {
		return
	}
	t.acting, t.acted, t.past = true, t.cfg.Mail.Now(), past
	clear(t.fresh)
	t.holders = make(map[string][]membership.Holder, len(holders))
	for _, h := range holders {
		t.holders[h.Lock] = append(t.holders[h.Lock], h)
	}
	for _, l := range t.all() {
		l.born()
		l.settle()
	}
	for _, h := range holders {
		if h.Node != t.start.Self {
			continue
		}
		if l := t.lock(h.Lock); !l.isHeld() && l.machine.Phase() == dmutex.Held {
			l.release() // it was released, or lost, since the report
		}
	}
	t.rehandle()
	if t.dropped {
		t.dropped = false
		t.cfg.Up.Trouble(epoch, errEarly)
	}
}

// Epoch returns the epoch of the view that was installed last.
func (t *Table) Epoch() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.epoch
}

// Lose ends all holds of this node, for the reason given. The locks stay taken until their holders
// release them.
func (t *Table) Lose(why error) {
	lost := t.loss(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	over := clock.Latest(t.cfg.Mail.Now(), t.lease.Load().lent)
	for _, l := range t.locks {
		for _, h := range l.held {
			h.lose(lost, over)
		}
	}
}

// loss returns the cause of holds that are lost now, or were at the end of the lease.
func (t *Table) loss(why error) *Cause {
	lost, left := loss(why), int64(0)
	if l := t.lease.Load(); l.Runs() {
		left = min(l.Until()-t.cfg.Clock(), 0)
	}
	lost.at = time.Now().Add(time.Duration(left))
	return lost
}

// Lapse is Lose for a lease that has ended: GiveBack and Return release the locks, too, and waiters
// keep waiting.
func (t *Table) Lapse(why error) {
	t.Lose(why)
	next := make(chan struct{})
	close(*t.lapsed.Swap(&next))
}

// Lapsed is closed at the next Lapse.
func (t *Table) Lapsed() <-chan struct{} { return *t.lapsed.Load() }

// GiveBack releases lapsed holds, but for those that are lent, and returns them.
func (t *Table) GiveBack() []Event {
	return t.giveBack(func(h *Held) bool { return !t.uses[h].lent && h.Noticed() != nil })
}

// Return releases the lent holds that were lost, and that no client surely held when an operation on the
// record was sent which has shown this life as a member. It returns them. Without that the others may have
// excluded this life, and the client may go on with another member.
func (t *Table) Return(sent clock.Steady) []Event {
	return t.giveBack(func(h *Held) bool {
		u := t.uses[h]
		return u.lost && !u.over.After(sent)
	})
}

// ReturnAll releases all lent holds that were lost, and returns them: this life is no member any more.
func (t *Table) ReturnAll() []Event {
	return t.giveBack(func(h *Held) bool { return t.uses[h].lost })
}

func (t *Table) giveBack(which func(*Held) bool) (outcomes []Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.all() {
		for _, h := range slices.Clone(l.held) {
			if which(h) {
				e, _ := l.leave(h, nil)
				outcomes = append(outcomes, e)
			}
		}
	}
	return outcomes
}

// Abandon ends and releases all holds after an End, for the reason given, and returns them. The locks
// under which a function still runs stay taken, and those that are lent stay held.
func (t *Table) Abandon(why error) (outcomes []Event) {
	lost := t.loss(why)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range t.all() {
		for _, h := range slices.Clone(l.held) {
			if u, used := t.uses[h]; !used {
				e, _ := l.leave(h, lost)
				outcomes = append(outcomes, e)
			} else if !u.lent {
				h.end(lost)
			}
		}
		switch {
		case l.isHeld():
		case l.in(dmutex.Held):
			l.release()
		case l.in(dmutex.Waiting):
			l.withdraw()
		}
	}
	return outcomes
}

// Used returns the name of a lock under which a function runs or, with lent, of one that is lent to a
// client; "" if there is none.
func (t *Table) Used(lent bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for h, u := range t.uses {
		if u.lent == lent {
			return h.lock.name
		}
	}
	return ""
}

// Rested gets a token when a function has ended that ran under a lock, and when a lent lock was released.
func (t *Table) Rested() <-chan struct{} { return t.rested }

// Obstacle says why no new request can be made now.
func (t *Table) Obstacle() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.obstacle()
}

func (t *Table) obstacle() error {
	if why := t.Why(); why != nil {
		return why
	}
	for _, p := range t.start.Members {
		if t.cfg.Mail.Backlog(p) > session.Buffer/2 { // the other half is for answers, which must not be refused
			return &Error{Peer: p, Err: ErrOverflow}
		}
	}
	return nil
}

// lock returns the lock of that name, which has a machine if the view acts.
func (t *Table) lock(name string) *lock {
	l := t.locks[name]
	if l == nil {
		l = &lock{table: t, name: name}
		l.held = l.one[:0]
		t.locks[name] = l
	}
	l.born()
	return l
}
