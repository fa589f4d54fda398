package locks

import (
	"context"
	"slices"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// A Want says how a call wants a lock.
type Want struct {
	Try    bool // it does not wait for a holder: it is over with ErrViewChanged when the view ends or does not act
	Shares bool // to share it: it is over with ErrUnshared if the algorithm does not share

	// Claims says that a client holds the lock by the last of these former members, and has left the
	// others for that one. The claim comes before all other waiters, who wait for the former members,
	// and its request serves nobody else. It is over at once with ErrClaim unless this node may take
	// it, see [carryover.MayClaim], and with ErrViewChanged when the view ends. If the last of them has said
	// what it has lent, the Key is that of this loan.
	Claims []dmutex.NodeID
	Key    string
}

// A Waiter is a call that wants a lock. It is over with a grant or an error, at the latest with that of End.
type Waiter struct {
	Want
	lock  *lock
	alone [1]*Waiter      // memory for lock.waiters, while it is the only one
	ctx   context.Context // the call's
	since clock.Steady    // when it began to wait

	asked []<-chan struct{} // the receipts of its request, if it is a try

	tell  func(*Waiter) // what is called when it is over; of a goroutine nil while it joins, and then closes ready
	ready chan struct{} // of a goroutine that waits
	held  *Held         // if it is over, one of these is set
	err   error
}

// waiters are those of calls that are over, so that a wait allocates nothing but its channel.
var waiters = sync.Pool{New: func() any { return new(Waiter) }}

// Free gives back a Waiter whose wait is over, and which nobody else knows.
func (w *Waiter) Free() {
	*w = Waiter{}
	waiters.Put(w)
}

// Join makes a call wait for a lock, and grants it at once if that needs no answer. The handle has the
// values of ctx.
//
// If tell is nil, and the call is over at once, Join returns its outcome and no Waiter: that
// allocates nothing but the handle. Else [Waiter.Ready] is closed when it is over. A tell is called
// then, perhaps at once, under the mutex of the Table: it must not wait, and starts a goroutine for
// what is to be done. A claim always has a tell, so a call without one stays the last waiter here.
func (t *Table) Join(ctx context.Context, name string, want Want, tell func(*Waiter)) (w *Waiter, h *Held, err error) {
	t.mu.Lock()
	l := t.lock(name)
	if w = &t.joining; tell != nil {
		w = new(Waiter)
	}
	*w = Waiter{Want: want, lock: l, ctx: ctx, since: t.cfg.Mail.Now(), tell: tell}
	switch why := t.Why(); {
	case why != nil:
		w.finish(nil, why)
	case want.Try && (!t.acting || !t.grants()):
		w.finish(nil, ErrViewChanged)
	case want.Shares && l.machine != nil && l.sharer() == nil:
		w.finish(nil, ErrUnshared)
	case want.Claims == nil:
		l.wait(len(l.waiters), w)
	default:
		l.wait(0, w)
		if !l.claimable() {
			l.waiters = slices.Delete(l.waiters, 0, 1)
			w.finish(nil, ErrClaim)
		}
	}
	l.settle()
	switch {
	case tell != nil:
	case w.over():
		w, h, err = nil, w.held, w.err
	default:
		w = waiters.Get().(*Waiter)
		*w = t.joining
		l.waiters = l.waiters[:len(l.waiters)-1]
		l.wait(len(l.waiters), w)
		w.ready, w.tell = make(chan struct{}), func(w *Waiter) { close(w.ready) }
	}
	t.joining = Waiter{}
	t.mu.Unlock()
	t.cfg.Mail.Flush()
	return w, h, err
}

// wait adds a waiter at a place. The first one brings the memory: most locks that are held have none.
func (l *lock) wait(at int, w *Waiter) {
	if len(l.waiters) == 0 {
		l.waiters = w.alone[:0]
		if t := l.table; !t.acting {
			t.waiting[l.name] = struct{}{}
		}
	}
	l.waiters = slices.Insert(l.waiters, at, w)
}

// claimable reports whether the first waiter, a claim, may request the lock.
func (l *lock) claimable() bool {
	w, t := l.waiters[0], l.table
	return !w.Shares && !l.isHeld() && l.in(dmutex.Idle) && t.grants() && !l.turns() && carryover.MayClaim(w.Claims, t.start.Members, l.former()) &&
		!t.past.Refutes(w.Claims[len(w.Claims)-1], membership.Loan{Lock: l.name, Key: w.Key})
}

// finish ends the wait, with a grant or an error. From then on the Waiter is its
// caller's.
func (w *Waiter) finish(h *Held, err error) {
	if w.held, w.err = h, err; w.tell != nil {
		w.tell(w)
	}
}

// over reports whether the wait is over. Its caller has the mutex of the Table.
func (w *Waiter) over() bool { return w.held != nil || w.err != nil }

// Over reports whether the wait is over.
func (w *Waiter) Over() bool {
	t := w.lock.table
	t.mu.Lock()
	defer t.mu.Unlock()
	return w.over()
}

// Ready is closed when the wait of a goroutine is over.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Lock returns the name of the lock.
func (w *Waiter) Lock() string { return w.lock.name }

// Receipts are given when the nodes that a try has asked have acknowledged its request.
func (w *Waiter) Receipts() []<-chan struct{} { return w.asked }

// Quit ends the wait, if it is not over, for the reason given. It reports whether it has.
func (w *Waiter) Quit(why error) (quit bool) { return w.quit(why, false) }

// GiveUp ends the wait, and gives back a grant that has come first.
func (w *Waiter) GiveUp(why error) { w.quit(why, true) }

// quit takes the request back with the last waiter, with a claim, and if the next waiter asks in the
// other mode.
func (w *Waiter) quit(why error, giveBack bool) (quit bool) {
	l := w.lock
	t := l.table
	t.mu.Lock()
	l.freeze()
	switch {
	case !w.over():
		quit = true
		l.waiters = slices.DeleteFunc(l.waiters, func(o *Waiter) bool { return o == w })
		w.finish(nil, why)
		if l.in(dmutex.Waiting) && (len(l.waiters) == 0 || w.Claims != nil || l.shares() != l.waiters[0].Shares) {
			l.withdraw()
		}
		l.settle() // the next one may need another answer, or none
	case giveBack && w.held != nil:
		l.leave(w.held, released)
	}
	if giveBack {
		w.held, w.err = nil, why
	}
	t.mu.Unlock()
	t.cfg.Mail.Flush()
	return quit
}

// Result returns the outcome of a wait that is over. It gives back a grant that was lost meanwhile.
func (w *Waiter) Result() (*Held, error) {
	if w.held != nil {
		if lost := w.held.Noticed(); lost != nil {
			w.GiveUp(lost)
		}
	}
	return w.held, w.err
}
