package locks

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// Several callers of this node may share one grant: lock.held is the handle of one of them, and
// Table.others has those of the others. They have the same fence. The machine is released with the
// last handle. The first waiter asks in its mode, and those that share and wait behind it are granted
// the lock together with it. A later caller that shares joins, at no message, while nobody waits
// here or, as far as the machine knows, elsewhere.

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
	return l.waiters[0].shares && l.held.Noticed() == nil && l.shares() && !l.sharer().Wanted()
}

// turns reports whether the first waiter has to wait until a withdrawn request to share has had
// its turn.
func (l *lock) turns() bool { return !l.waiters[0].shares && l.machine.Pending() && l.shares() }

// wanted reports whether a request waits, here or elsewhere, for a hold that shares.
func (l *lock) wanted() bool {
	return l.held != nil && l.shared && (len(l.waiters) > 0 && !l.waiters[0].shares || l.shares() && l.sharer().Wanted())
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
func (l *lock) handles() []*Held {
	if l.held == nil {
		return nil
	}
	return append([]*Held{l.held}, l.table.others[l]...)
}

// has reports whether a handle is one of the present grant.
func (l *lock) has(h *Held) bool {
	return l.held == h || slices.Contains(l.table.others[l], h)
}

// leave ends a handle of the present grant, as release does, and the grant with the last one.
func (l *lock) leave(h *Held, why *End) Event {
	others := l.table.others[l]
	if len(others) == 0 {
		return l.release(why)
	}
	h.end(why)
	l.table.repaid(h)
	if h == l.held {
		l.held = others[0]
	}
	k := max(slices.Index(others, h), 0)
	if others = slices.Delete(others, k, k+1); len(others) > 0 {
		l.table.others[l] = others
	} else {
		delete(l.table.others, l)
	}
	e := h.outcome()
	l.settle() // the door may have been closed by a hold that was lost
	return e
}
