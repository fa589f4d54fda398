package world

import (
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership/lease"
)

// All members have the same settings. A process that has others stops, and changes nothing. If there is no member at the
// moment, it would begin the group, and the others would stop: so what it writes then is lost.

// registered returns the members in the record.
func (w *World) registered() (all []dmutex.NodeID) {
	w.group.edit(func(value []byte) []byte {
		var r lease.Record
		if r.UnmarshalText(value) == nil {
			for _, e := range r.Members {
				all = append(all, e.Node)
			}
		}
		return nil
	})
	return all
}

// stranger lets a process with another lease begin, which is refused, and ends it.
func (w *World) stranger() {
	if w.some() == nil || len(w.registered()) == 0 || w.damaged.Load() {
		return
	}
	w.count("a stranger")
	w.differs.Store(true)
	s := &slot{place: dmutex.NodeID(len(w.slots) + 1)}
	w.enter(s, leaseOf*9/10)
	time.Sleep(leaseOf)
	s.now.kill()
}

// changes takes a member away, lets the others stop and begin again, perhaps with another lease, and lets the first one come
// back.
func (w *World) changes() {
	s := w.some()
	if s == nil || w.damaged.Load() || w.stores.later > 0 { // a member that has died might join
		return
	}
	w.count("settings change")
	w.differs.Store(true)
	p := s.now
	p.exiled.Store(true)
	p.isolate(true)
	w.exclude(p.node.Self())
	for _, o := range w.slots {
		if o != s && o.now != nil {
			w.leave(o).close(leaseOf, false)
		}
	}
	for _, id := range w.registered() { // that could not say goodbye
		w.exclude(id)
	}
	w.lease.Store(int64(leaseOf))
	if w.Luck.IntN(2) == 0 {
		w.lease.Store(int64(leaseOf * 4 / 5))
	}
	for _, o := range w.slots {
		w.begin(o)
	}
	for end := time.Now().Add(8 * leaseOf); len(w.registered()) == 0; time.Sleep(leaseOf / 10) { // else it would begin the group
		if time.Now().After(end) {
			w.Wrong("no member has begun the group again")
			break
		}
		for _, o := range w.slots { // the store may have been unusable
			if o != s && o.now != nil && o.now.failed.Load() {
				w.leave(o).close(leaseOf, false)
				w.begin(o)
			}
		}
	}
	time.Sleep(w.UpTo(leaseOf * 3 / 2))
	p.exiled.Store(false)
	p.isBack(0)
	for end := time.Now().Add(leaseOf); p.outdated() && !p.failed.Load() && time.Now().Before(end); {
		time.Sleep(leaseOf / 10)
	}
	if p.outdated() { // else it might begin the group one day
		w.leave(s).kill()
	}
}

// outdated reports whether a member has other settings than those that begin now.
func (p *process) outdated() bool { return p.lease != time.Duration(p.w.lease.Load()) }
