package locks

import (
	"context"
	"slices"
	"sync"

	"github.com/dmutex/dmutex"
)

// A Waiter is a call that wants a lock. It is over with a grant or an error.
type Waiter struct {
	lock  *lock
	ctx   context.Context   // the call's
	since int64             // when it began to wait, by Mail.Now
	try   bool              // it does not wait for a holder
	asked []<-chan struct{} // the receipts of its request, if it is a try

	tell  func(*Waiter) // what is called when it is over; of a goroutine nil until it has to wait, and then closes ready
	ready chan struct{} // of a goroutine that waits
	held  *Held         // if it is over, one of these is set
	err   error
}

// waiters are kept, so that a call which gets the lock at once allocates nothing but its handle.
var waiters = sync.Pool{New: func() any { return new(Waiter) }}

// Join makes a call wait for a lock, and grants it at once if that needs no answer. A try is over
// with ErrViewChanged when the view ends or does not act. The handle has the values of ctx.
//
// When the wait is over, perhaps at once, tell is called, under the mutex of the Table: it must not
// wait, and starts a goroutine for what is to be done. If it is nil, [Waiter.Ready] is closed.
func (t *Table) Join(ctx context.Context, name string, try bool, tell func(*Waiter)) *Waiter {
	w := waiters.Get().(*Waiter)
	t.mu.Lock()
	l := t.lock(name)
	*w = Waiter{lock: l, ctx: ctx, since: t.cfg.Mail.Now(), try: try, tell: tell}
	switch why := t.Why(); {
	case why != nil:
		w.finish(nil, why)
	case try && (!t.acting || !t.grants()):
		w.finish(nil, ErrViewChanged)
	default:
		l.waiters = append(l.waiters, w)
	}
	l.settle()
	if !w.over() && tell == nil {
		w.ready, w.tell = make(chan struct{}), func(w *Waiter) { close(w.ready) }
	}
	t.mu.Unlock()
	t.cfg.Mail.Flush()
	return w
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

// Ready is closed when a wait is over that was not over at once.
func (w *Waiter) Ready() <-chan struct{} { return w.ready }

// Lock returns the name of the lock.
func (w *Waiter) Lock() string { return w.lock.name }

// Receipts are given when the nodes that a try has asked have acknowledged its request.
func (w *Waiter) Receipts() []<-chan struct{} { return w.asked }

// Quit ends the wait, if it is not over, for the reason given. It reports whether it has.
func (w *Waiter) Quit(why error) (quit bool) { return w.quit(why, false) }

// GiveUp ends the wait, and gives back a grant that has come first.
func (w *Waiter) GiveUp(why error) { w.quit(why, true) }

// quit takes the request back with the last waiter.
func (w *Waiter) quit(why error, giveBack bool) (quit bool) {
	l := w.lock
	t := l.table
	t.mu.Lock()
	switch {
	case !w.over():
		quit = true
		l.waiters = slices.DeleteFunc(l.waiters, func(o *Waiter) bool { return o == w })
		w.finish(nil, why)
		if len(l.waiters) == 0 && l.in(dmutex.Waiting) {
			l.withdraw()
		} else {
			l.rest()
		}
	case giveBack && w.held != nil && l.held == w.held:
		l.release(released)
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

// Free lets another call use the Waiter. The caller must not use it any more.
func (w *Waiter) Free() {
	*w = Waiter{}
	waiters.Put(w)
}
