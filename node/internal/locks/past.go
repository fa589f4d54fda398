package locks

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"time"
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
		w.Note(name, l.machine, t.newborn(w, name))
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
		Self: key.self, Members: w.Members, Home: key.home, Fence: epochs.First(w.Epoch), Limit: epochs.Last(w.Epoch),
	})
	if err == nil { // else no correct peer has such a word
		bits, _ = membership.Excluding(m, w.Members)
	}
	t.fresh[key] = bits
	return bits
}

// former is rule 5a of package membership: it returns the former members that may hold the lock so that its
// first waiter, or else a call that wants it alone, has to wait.
func (l *lock) former() (ids []dmutex.NodeID) {
	t, name := l.table, l.name
	if t.past == nil {
		return nil
	}
	shares := len(l.waiters) > 0 && l.waiters[0].Shares
	for _, f := range t.past.Holders(name, shares, t.cleared, func(w *membership.Word) uint64 { return t.newborn(w, name) }) {
		ids = append(ids, f.Node)
	}
	return ids
}

// Clear lets the locks go on that only wait for members which were excluded in this epoch or
// before. Those of the others are expected to go on after so long.
func (t *Table) Clear(epoch uint64, after time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drainAt = t.cfg.Mail.Now().Add(after); epoch <= t.cleared {
		return
	}
	if t.cleared = epoch; t.past == nil || len(t.past.Former) == 0 {
		return
	}
	for _, l := range t.all() {
		l.settle()
	}
}
