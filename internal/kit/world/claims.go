package world

import (
	"cmp"
	"slices"
	"time"
)

// What happens to clients while they hold, and to the members that have lent it to them.

// lent draws a client that holds something by a member that is there, and is to hold it for so long, and returns both, nil if
// there is none. It waits a while for one.
func (w *World) lent(atLeast time.Duration) (u *process, s *slot) {
	for range 10 {
		users := slices.Clone(w.users)
		w.Luck.Shuffle(len(users), func(i, j int) { users[i], users[j] = users[j], users[i] })
		for _, u := range users {
			if u.client == nil || time.Until(time.Unix(0, u.holds.Load())) < atLeast {
				continue
			}
			st := u.client.Status()
			i := slices.IndexFunc(w.slots, func(s *slot) bool {
				return s.now != nil && (st.Member == s.now.address || st.Member == s.now.who)
			})
			if i >= 0 && len(st.Holds) > 0 {
				return u, w.slots[i]
			}
		}
		time.Sleep(leaseOf / 20)
	}
	return nil, nil
}

// goesWhileLent takes a member away from a client that holds something: it crashes, closes, is excluded, or is out of
// reach, of that client too or not, which may lose its connection first, or answers, or be cut off until its session ends.
func (w *World) goesWhileLent() {
	u, s := w.lent(0)
	if u == nil {
		return
	}
	w.count("a member goes")
	p, most := s.now, leaseOf
	switch w.Luck.IntN(5) {
	case 0: // what the member says arrives no more, and what the client says may
		u.silence(true, w.Luck.IntN(2) == 0)
		most = leaseOf * 3 / 2
	case 1: // it reaches nobody for a while
		u.isolate(true)
	case 2:
		u.hangUp(p)
	}
	u.isBack(w.UpTo(most))
	time.Sleep(w.UpTo([]time.Duration{time.Millisecond, leaseOf / 10, leaseOf / 2}[w.Luck.IntN(3)]))
	if s.now != p {
		return
	}
	switch w.Luck.IntN(11) {
	case 0, 1:
		w.leave(s).kill()
		if o := w.some(); o != nil && w.Luck.IntN(2) == 0 { // so that the next one may take over some of what the client holds, and not all
			w.leave(o).kill()
		}
	case 2:
		w.leave(s).close(leaseOf, false)
	case 3:
		w.exclude(p.node.Self())
		return
	case 4, 5: // only the client goes
		u.silence(true, true)
		return
	case 6: // its lease ends, and so does what it has lent
		p.cutOff.Store(true)
		p.isBack(w.UpTo(leaseOf * 5 / 2))
		return
	case 7, 8: // as when its host has stopped it, and time has told it so
		if w.sets {
			w.setWall(p, 1+w.UpTo(leaseOf*3/2))
		}
		return
	case 9:
		p.isolate(true)
		p.isBack(w.UpTo(leaseOf * 5 / 2))
		return
	case 10:
		w.sleeps(p)
		return
	}
	if w.Luck.IntN(2) == 0 {
		w.begin(s)
	}
}

// leaps takes the member away from a client that holds something, and sets the wall clock of the next one forward that is to
// take that over, so that it loses its lease while it waits for that.
func (w *World) leaps() {
	u, s := w.lent(leaseOf)
	if u == nil || !w.sets {
		return
	}
	claims := func(p *process) uint64 { return p.node.Status().ClientsClaims }
	before := make(map[*process]uint64)
	for _, p := range w.memberProcesses() {
		before[p] = claims(p)
	}
	delete(before, s.now)
	w.leave(s).kill()
	for end := time.Now().Add(leaseOf); time.Now().Before(end); time.Sleep(leaseOf / 1000) {
		for _, p := range w.memberProcesses() {
			if was, there := before[p]; there && claims(p) > was {
				w.count("the next one leaps")
				w.setWall(p, leaseOf)
				return
			}
		}
	}
}

// hearsLate lets a client that holds something hear nothing for a while, and then what was said, and from then on reach
// nobody for longer than its session.
func (w *World) hearsLate() {
	session := cmp.Or(w.session, leaseOf)
	u, _ := w.lent(session * 3 / 2)
	if u == nil {
		return
	}
	w.count("a client hears late")
	late := session/4 + w.UpTo(session/12) // a third is too late
	switch {
	case w.wires > leaseOf/10: // it hears late anyway
	case u.socket != nil:
		for _, s := range w.slots {
			w.streams.Stall(w.machineOf(s.name()).Host, u.at.Host, late*2)
		}
		time.Sleep(late)
		u.apart(true, false) // which ends the stall
	case u.way != nil:
		u.way.Hold(false, true)
		time.Sleep(late)
		u.way.Hold(true, false)
	default:
		u.ears.Store(new(make(chan struct{})))
		time.Sleep(late)
		u.silence(false, true)
		close(*u.ears.Swap(nil))
	}
	u.mute.Store(true)
	time.Sleep(time.Millisecond)
	u.isBack(leaseOf * 2)
	u.isolate(true)
}

// twoGo takes the member away from a client that holds something, and then another one, which was confirmed just before.
// The client is back while both may still have a lease.
func (w *World) twoGo() {
	u, s := w.lent(leaseOf * 3 / 2)
	other := w.some()
	if u == nil || other == nil || other == s || len(w.memberProcesses()) < 3 {
		return
	}
	w.count("two members go")
	next := other.now
	u.isolate(true)
	id := s.now.node.Self()
	w.leave(s).kill()
	w.exclude(id)
	next.shut.Store(true)
	time.Sleep(leaseOf/10 + w.UpTo(leaseOf/10))
	done := make(chan struct{})
	next.trap.Store(new(func() {
		next.isolate(true)
		w.exclude(next.node.Self())
		close(done)
	}))
	select {
	case <-done:
	case <-time.After(leaseOf / 3):
		next.trap.Store(nil)
	}
	next.isBack(leaseOf * 2)
	u.isBack(w.UpTo(leaseOf / 20))
}

// isBack lets a process that is cut off reach the others again after so long, unless somebody says something else until then.
func (p *process) isBack(after time.Duration) {
	n := p.cuts.Add(1)
	time.AfterFunc(after, func() {
		if p.cuts.Load() == n && !p.dead.Load() {
			p.isolate(false)
		}
	})
}
