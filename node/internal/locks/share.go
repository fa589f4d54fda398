package locks

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
)

// Several callers of this node may share one grant: lock.held returns their handles, in no order. They
// have the same fence. The machine is released with the last handle. The first waiter asks in its mode,
// and those that share and wait behind it are granted the lock together with it. A later caller that
// shares joins, at no message, while nobody waits here or, as far as the machine knows, elsewhere.

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
	return l.waiters[0].Shares && l.held()[0].Noticed() == nil && l.shares() && !l.sharer().Wanted()
}

// turns reports whether the first waiter has to wait until a withdrawn request of the other mode has had
// its turn, or is taken back.
func (l *lock) turns() bool { return l.machine.Pending() && l.shares() != l.waiters[0].Shares }

// wanted reports whether a request waits, here or elsewhere, for a hold that shares.
func (l *lock) wanted() bool {
	return l.isHeld() && l.shared && (len(l.waiters) > 0 && !l.waiters[0].Shares || l.shares() && l.sharer().Wanted())
}

// tellWanted tells those that share the lock and look at Asked.
func (l *lock) tellWanted() {
	if !l.wanted() {
		return
	}
	for _, h := range l.held() {
		if own := h.own(); own != nil { // else it looks at wanted when it is asked for Asked
			own.ask()
		}
	}
}

// isHeld reports whether the present grant has a handle.
func (l *lock) isHeld() bool { return l.one[0] != nil || l.several != nil }

// held returns the handles of the present grant.
func (l *lock) held() []*Held {
	switch {
	case l.several != nil:
		return *l.several
	case l.one[0] != nil:
		return l.one[:]
	}
	return nil
}

// none takes them out.
func (l *lock) none() { l.one[0], l.several = nil, nil }

// oldest returns the handle that is there for the longest.
func (l *lock) oldest() *Held {
	return slices.MinFunc(l.held(), func(a, b *Held) int { return cmp.Compare(a.since.Age(), b.since.Age()) })
}

// add adds a handle to the present grant.
func (l *lock) add(h *Held) {
	switch {
	case !l.isHeld():
		l.one[0] = h
	case l.several == nil:
		l.several, l.one[0] = &[]*Held{l.one[0], h}, nil
	default:
		*l.several = append(*l.several, h)
	}
}

// has reports whether a handle is one of the present grant.
func (l *lock) has(h *Held) bool { return slices.Contains(l.held(), h) }

// leave ends a handle, for the reason given if it has not ended before, and returns its outcome for Tell, if it is
// one of the present grant. The grant ends with its last handle.
func (l *lock) leave(h *Held, why *Cause) (outcome Event, left bool) {
	held := l.held()
	at := slices.Index(held, h)
	if at < 0 {
		return outcome, false
	}
	l.freeze()
	if last := len(held) - 1; last == 0 {
		l.none()
	} else {
		held[at] = held[last]
		*l.several = slices.Delete(held, last, last+1)
	}
	h.end(why)
	l.table.repaid(h)
	if l.table.cfg.Tell != nil { // else nobody hears of it, and the clock takes longer than the rest
		outcome = h.outcome()
	}
	if !l.isHeld() {
		if !l.table.acting {
			l.table.returned = append(l.table.returned, l.name)
		}
		l.release()
	} else {
		l.settle() // the door may have been closed by a hold that was lost
	}
	return outcome, true
}
