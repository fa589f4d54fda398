package locks

import "github.com/dmutex/dmutex"

// Several callers of this node may share one grant: lock.held is the handle of the first of them, and
// the others follow it. They have the same fence. The machine is released with the last handle. The
// first waiter asks in its mode, and those that share and wait behind it are granted the lock together
// with it. A later caller that shares joins, at no message, while nobody waits here or, as far as the
// machine knows, elsewhere.

// sharer returns the machine if it is a Sharer.
func (l *lock) sharer() dmutex.Sharer {
	m, _ := l.machine.(dmutex.Sharer)
	return m
}

// shares reports whether the machine's request, pending or held, shares.
func (l *lock) shares() bool {
	m := l.sharer()
	return m != nil && m.Shared()
}

// open reports whether the first waiter may join the present holders. What was lost has the fence of
// a view that may be over.
func (l *lock) open() bool {
	return l.waiters[0].Shares && l.held.Noticed() == nil && l.shares() && !l.sharer().Wanted()
}

// turns reports whether the first waiter has to wait until a withdrawn request to share has had
// its turn.
func (l *lock) turns() bool { return !l.waiters[0].Shares && l.machine.Pending() && l.shares() }

// wanted reports whether a request waits, here or elsewhere, for a hold that shares.
func (l *lock) wanted() bool {
	return l.held != nil && l.shared && (len(l.waiters) > 0 && !l.waiters[0].Shares || l.shares() && l.sharer().Wanted())
}

// tellWanted tells those that share the lock and look at Asked.
func (l *lock) tellWanted() {
	if !l.wanted() {
		return
	}
	for _, h := range l.handles() {
		if h.own != nil { // else it looks at wanted when it is asked for Asked
			h.own.ask()
		}
	}
}

// handles returns the handles of the present grant.
func (l *lock) handles() (all []*Held) {
	for h := l.held; h != nil; h = h.next {
		all = append(all, h)
	}
	return all
}

// add makes a handle the last of the present grant.
func (l *lock) add(h *Held) {
	*l.last = h
	l.last = &h.next
}

// place returns where a handle of the present grant stands, or where the next one goes.
func (l *lock) place(h *Held) **Held {
	at := &l.held
	for *at != nil && *at != h {
		at = &(*at).next
	}
	return at
}

// has reports whether a handle is one of the present grant.
func (l *lock) has(h *Held) bool { return *l.place(h) != nil }

// leave ends a handle, for the reason given if it has not ended before, and returns its outcome, if it is
// one of the present grant. The grant ends with its last handle.
func (l *lock) leave(h *Held, why *End) (outcome Event, left bool) {
	at := l.place(h)
	if *at == nil {
		return outcome, false
	}
	if *at, h.next = h.next, nil; *at == nil {
		l.last = at
	}
	h.end(why)
	l.table.repaid(h)
	outcome = h.outcome()
	if l.held == nil {
		l.release()
	} else {
		l.settle() // the door may have been closed by a hold that was lost
	}
	return outcome, true
}
