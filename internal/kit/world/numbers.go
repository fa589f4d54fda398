package world

import (
	"time"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
)

// In the strict mode people give the numbers, and may be wrong: about who is dead, where a number is used, or the time.

// mistakes lets a member be taken for dead that is not. It holds nothing by then, and takes nothing any more, as the mode
// relies on that. It is paused, cut off from another one, or well. It is evicted, or a second process gets its number, or
// both. Then it is back, and the mistake ends.
func (w *World) mistakes() {
	s, other := w.some(), w.some()
	if s == nil || other == s {
		return
	}
	w.count("a member is taken for dead")
	w.evicts.Store(true)
	p := s.now
	p.stop()
	p.callers.Wait()
	switch w.Luck.IntN(4) {
	case 0, 1:
		p.pause()
	case 2:
		w.cut(p, other.now)
		w.cut(other.now, p)
	}
	evicted, second := w.Luck.IntN(2) == 0, &slot{place: s.place, second: true}
	if evicted {
		_ = other.now.node.Evict(nodetest.ContextFor(w.t, leaseOf), s.place)
	}
	if w.tcp || w.overNATS { // in memory a number is used once
		if !evicted || w.Luck.IntN(2) == 0 {
			w.begin(second)
		}
	}
	time.Sleep(w.UpTo(leaseOf * 3 / 2))
	p.resume()
	w.heal()
	time.Sleep(w.UpTo(leaseOf * 3 / 2))
	if second.now != nil {
		w.leave(second).close(leaseOf, true)
	}
	w.leave(s).close(leaseOf, false)
	w.begin(s)
}

// misplaces lets a process of another group begin in the place of a member. It is granted nothing, and disturbs nobody.
func (w *World) misplaces() {
	s := w.some()
	if s == nil {
		return
	}
	w.count("a process of another group")
	w.differs.Store(true)
	w.leave(s).close(leaseOf, false)
	s.group = "another world"
	w.begin(s)
	s.group = ""
	time.Sleep(w.UpTo(leaseOf / 2))
	w.leave(s).kill()
	w.begin(s)
}

// beginsAhead lets a member begin while the clock of its machine is ahead, and again when that is set right.
func (w *World) beginsAhead() {
	s := w.some()
	if s == nil {
		return
	}
	w.evicts.Store(true) // who hears of the first one when that time has passed takes it for a successor, and stops
	w.leave(s).kill()
	s.ahead = 1 + w.UpTo(leaseOf*3/2)
	w.begin(s)
	s.ahead = 0
	time.Sleep(w.UpTo(leaseOf / 2))
	w.leave(s).kill()
	w.begin(s)
}
