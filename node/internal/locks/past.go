package locks

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A newborn is the new machine of a free lock.
type newborn struct {
	epoch      uint64
	self, home dmutex.NodeID
}

// word returns what the machines of the view know.
func (t *Table) word() *membership.Word {
	for name := range t.holders { // what a machine that was not needed yet would know
		t.lock(name)
	}
	w := &membership.Word{Node: t.start.Self, Epoch: t.epoch, Members: t.start.Members}
	for name, l := range t.locks {
		if bits := membership.Excluding(l.machine, w.Members) ^ t.newborn(w, name); bits != 0 {
			w.Differs = append(w.Differs, membership.Differ{Lock: name, Bits: bits})
		}
	}
	return w
}

// newborn returns what the new machine of a lock, if free, excludes at the node of a word.
// That depends only on the home and the members, see [dmutex.Excluder].
func (t *Table) newborn(w *membership.Word, name string) uint64 {
	key := newborn{w.Epoch, w.Node, Home(name, w.Members)}
	bits, known := t.fresh[key]
	if known {
		return bits
	}
	m, err := t.cfg.Algorithm(dmutex.Start{
		Self: key.self, Members: w.Members, Home: key.home, Fence: membership.FirstFence(w.Epoch), Limit: membership.LastFence(w.Epoch),
	})
	if err == nil { // else no correct peer has such a word
		bits = membership.Excluding(m, w.Members)
	}
	t.fresh[key] = bits
	return bits
}

// former returns the former members that may hold a lock.
func (t *Table) former(name string) (ids []dmutex.NodeID) {
	if t.past == nil {
		return nil
	}
	for _, f := range t.past.Holders(name, t.cleared, func(w *membership.Word) uint64 { return t.newborn(w, name) }) {
		ids = append(ids, f.Node)
	}
	return ids
}

// Clear lets the locks go on that only wait for members which were excluded in this epoch or
// before. Those of the others are expected to go on at the time given, by Config.Clock.
func (t *Table) Clear(epoch uint64, drainAt int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drainAt = drainAt; epoch <= t.cleared {
		return
	}
	if t.cleared = epoch; t.past == nil || len(t.past.Former) == 0 {
		return
	}
	for _, l := range t.all() {
		l.settle()
	}
}
