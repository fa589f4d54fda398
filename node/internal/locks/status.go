package locks

import (
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership/carryover"
)

// Status is how this node sees one lock.
type Status struct {
	Phase    dmutex.Phase
	Home     dmutex.NodeID // None at rest
	Holder   dmutex.NodeID // as far as this node knows
	HeldFor  time.Duration // how long this node has known the holder
	Shared   bool
	Sharing  int
	Sharers  []dmutex.NodeID
	Client   string
	Fence    uint64
	Age      time.Duration
	Waiters  int
	WaitsFor []dmutex.NodeID

	// The former members that may hold the lock: nobody here requests it until their
	// leases have ended, in so long at most.
	Former      []dmutex.NodeID
	FormerNames []string // for package node to set
	Drains      time.Duration
}

// Status returns how this node sees the lock now.
func (t *Table) Status(name string) Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.locks[name]
	if l == nil {
		l = &lock{table: t, name: name}
	}
	return l.status()
}

func (l *lock) status() Status {
	now := l.table.cfg.Mail.Now()
	if l.freeze(); l.shared {
		l.born() // it knows the others that share the lock
	}
	st := Status{Waiters: len(l.waiters)}
	if l.machine != nil {
		if st.Holder = l.holder; st.Holder != dmutex.None {
			st.HeldFor = now.Sub(l.learned)
		}
		st.Phase = l.machine.Phase()
		st.WaitsFor = l.machine.WaitsFor(nil)
		if m := l.sharer(); m != nil {
			st.Shared, st.Sharers = m.Shared(), m.Sharers(nil)
		}
	}
	if st.Former = l.former(); st.Former != nil {
		st.Drains = l.table.drains()
	}
	if !l.atRest() {
		st.Home = Home(l.name, l.table.start.Members)
	}
	switch {
	case l.isHeld(): // also while the view does not act
		h := l.oldest()
		st.Phase, st.Fence, st.Age = dmutex.Held, h.fence, now.Sub(h.since)
		st.Client = l.table.uses[h].client
		if st.Shared = l.shared; !l.shared {
			st.Holder, st.HeldFor = l.table.start.Self, st.Age
			break
		}
		st.Sharing = len(l.held())
		if self := l.table.start.Self; !slices.Contains(st.Sharers, self) {
			st.Sharers = append(st.Sharers, self)
		}
	case len(l.waiters) > 0:
		st.Phase, st.Age = dmutex.Waiting, now.Sub(l.waiters[0].since)
	}
	return st
}

// Alone returns for how long a call of this node has waited to hold a lock alone, 0 if none does; whether
// one that would share it waits behind that; and whether, as far as a node that shares it knows, a call of
// another node waits to hold it alone.
func (t *Table) Alone(name string) (waited time.Duration, before, elsewhere bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.locks[name]
	if l == nil {
		return 0, false, false
	}
	for _, w := range l.waiters {
		if before = waited > 0 && w.Shares; before {
			break
		}
		if waited == 0 && !w.Shares {
			waited = max(1, t.cfg.Mail.Now().Sub(w.since))
		}
	}
	return waited, before, l.lives() && l.in(dmutex.Held) && l.shares() && l.sharer().Wanted()
}

// drains returns in how long the locks that former members may hold go on at the latest.
func (t *Table) drains() time.Duration { return max(t.drainAt.Sub(t.cfg.Mail.Now()), 0) }

// every returns all locks, to look at one after the other while others go on.
func (t *Table) every() []*lock {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.locks))
}

// InUse returns the locks that are not at rest.
func (t *Table) InUse() iter.Seq2[string, Status] {
	return func(yield func(string, Status) bool) {
		for _, l := range t.every() {
			var st Status
			t.mu.Lock()
			used := t.locks[l.name] == l && !l.atRest()
			if used {
				st = l.status()
			}
			t.mu.Unlock()
			if used && !yield(l.name, st) {
				return
			}
		}
	}
}

// atRest reports whether the lock is kept only for what it remembers.
func (l *lock) atRest() bool {
	if l.isHeld() || len(l.waiters) > 0 {
		return false
	}
	if !l.lives() {
		return true
	}
	_, _, fresh := l.machine.Forget()
	keeper, ok := l.machine.(dmutex.Keeper)
	return fresh || ok && keeper.Keeps()
}

// Totals sums up the locks, and has what was counted until now.
type Totals struct {
	Locks          int // that the Table has
	Granted        uint64
	Sent, Received [dmutex.Kinds]uint64

	Held, Shared, Waiting, Waiters int
	OldestHold, OldestWait         time.Duration

	Draining int // of those waited for, by former members
	Drains   time.Duration

	MayHold map[dmutex.NodeID]int // how many each other member may hold, as far as the machines here know
}

// Totals looks at every lock, and is read for metrics: so it takes no Status of each.
func (t *Table) Totals() (sum Totals) {
	now := t.cfg.Mail.Now()
	sum.MayHold = make(map[dmutex.NodeID]int)
	for _, l := range t.every() {
		t.mu.Lock()
		if !l.atRest() && !l.isHeld() && l.lives() {
			excluded, _ := carryover.Excluding(l.machine, t.start.Members)
			for i, id := range t.start.Members {
				if excluded>>i&1 == 0 && id != t.start.Self {
					sum.MayHold[id]++
				}
			}
		}
		sum.Waiters += len(l.waiters)
		switch {
		case l.isHeld():
			if sum.Held++; l.shared {
				sum.Shared++
			}
			sum.OldestHold = max(sum.OldestHold, now.Sub(l.oldest().since))
		case len(l.waiters) > 0:
			sum.Waiting++
			sum.OldestWait = max(sum.OldestWait, now.Sub(l.waiters[0].since))
			if len(l.former()) > 0 {
				sum.Draining, sum.Drains = sum.Draining+1, t.drains()
			}
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	sum.Locks, sum.Granted, sum.Sent, sum.Received = len(t.locks), t.granted, t.sent, t.received
	return sum
}

// Waits returns the locks that are waited for here, and how long the first waiter of each has waited.
func (t *Table) Waits() map[string]time.Duration {
	waits := make(map[string]time.Duration)
	for _, l := range t.every() {
		t.mu.Lock()
		if len(l.waiters) > 0 {
			waits[l.name] = t.cfg.Mail.Now().Sub(l.waiters[0].since)
		}
		t.mu.Unlock()
	}
	return waits
}

// Lends returns the node to which this one has lent the lock: see [dmutex.Lender].
func (t *Table) Lends(name string) (to dmutex.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil && l.lives() {
		if m, ok := l.machine.(dmutex.Lender); ok {
			to = m.Lends()
		}
	}
	return to
}
