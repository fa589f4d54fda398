package locks

import (
	"slices"

	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// Newborns are what new machines exclude at the node of a word, which epoch and node name.
type newborns map[[2]uint64]map[newborn]excluded

// A newborn is all that this depends on.
type newborn struct {
	home, holder dmutex.NodeID
	sharers      uint64 // a bit for each of the members
}

// free is how a lock starts that nobody holds.
var free dmutex.Start

func (n newborns) of(w *membership.Word) map[newborn]excluded {
	key := [2]uint64{uint64(w.Node), w.Epoch}
	if n[key] == nil {
		n[key] = make(map[newborn]excluded)
	}
	return n[key]
}

// An excluded is what a machine excludes, see carryover.Excluding.
type excluded struct{ bits, alone uint64 }

// foresee adds to the word what the machines would know that were not needed in its view, without
// bringing them about.
func (t *Table) foresee() {
	t.mu.Lock()
	word, unborn := t.word, t.unborn
	t.unborn = nil
	t.mu.Unlock()
	if word == nil || unborn == nil {
		return
	}
	more := membership.Word{Node: word.Node, Epoch: word.Epoch, Members: word.Members}
	known := make(map[newborn]excluded)
	for name, carried := range unborn.All() {
		home := Home(name, more.Members)
		would := t.newborn(known, &more, home, carried)
		carryover.Add(&more, name, would.bits, would.alone, t.newborn(known, &more, home, &free).bits)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	word.Differs, word.Alone = append(more.Differs, word.Differs...), append(more.Alone, word.Alone...)
}

// newborn returns what the new machine of a lock excludes that was carried like that. It keeps that in known.
func (t *Table) newborn(known map[newborn]excluded, w *membership.Word, home dmutex.NodeID, carried *dmutex.Start) excluded {
	key := newborn{home: home, holder: carried.Holder}
	for _, id := range carried.Sharers {
		key.sharers |= 1 << slices.Index(w.Members, id)
	}
	would, found := known[key]
	if !found {
		would = t.birth(w, home, carried)
		known[key] = would
	}
	return would
}

// birth brings a machine about that was carried like that, and asks it.
func (t *Table) birth(w *membership.Word, home dmutex.NodeID, carried *dmutex.Start) (would excluded) {
	start := dmutex.Start{
		Self: w.Node, Members: w.Members, Home: home, Holder: carried.Holder, Sharers: carried.Sharers,
		Fence: epochs.First(w.Epoch), Limit: epochs.Last(w.Epoch),
	}
	m, err := t.cfg.Algorithm(start)
	if err != nil && (carried.Holder != dmutex.None || len(carried.Sharers) > 0) { // no correct peer says that it shares
		return t.birth(w, home, &free)
	}
	if err == nil { // else no correct peer has such a word
		would.bits, would.alone = carryover.Excluding(m, w.Members)
	}
	return would
}

// former is rule 5a of package lease: it returns the former members that may hold the lock so that its
// first waiter, or else a call that wants it alone, has to wait.
func (l *lock) former() (ids []dmutex.NodeID) {
	t, name := l.table, l.name
	if t.past == nil {
		return nil
	}
	shares := len(l.waiters) > 0 && l.waiters[0].Shares
	for _, f := range t.past.Holders(name, shares, t.cleared, func(w *membership.Word) uint64 {
		return t.newborn(t.fresh.of(w), w, Home(name, w.Members), &free).bits
	}) {
		ids = append(ids, f.Node)
	}
	return ids
}

// keepFreed is how many of them are kept until the next view acts. The others wait for a lease.
const keepFreed = 1 << 16

// A freed is a lock that a former member does not have any more.
type freed struct {
	former dmutex.NodeID
	loan   membership.Loan
}

// Freed lets a lock go on that a former member does not have any more, since a client has gone on with
// another one.
func (t *Table) Freed(former dmutex.NodeID, loan membership.Loan) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := freed{former, loan}
	if !t.acting { // what is known of the past of the next view may have been found out before
		if len(t.freed) < keepFreed {
			t.freed = append(t.freed, f)
		}
		return
	}
	t.free(f)
	if l := t.locks[loan.Lock]; l != nil {
		l.settle()
	}
}

func (t *Table) free(f freed) {
	if t.past != nil {
		t.past.Free(f.former, f.loan)
	}
}

// Clear lets the locks go on that only wait for members which were excluded in this epoch or
// before, when Settle is called: it reports whether there may be some. Those of the others are expected to go on
// after so long.
func (t *Table) Clear(epoch uint64, after time.Duration) (frees bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.drainAt = t.cfg.Mail.Now().Add(after); epoch <= t.cleared {
		return false
	}
	t.cleared = epoch
	return t.past != nil && len(t.past.Former) > 0
}
