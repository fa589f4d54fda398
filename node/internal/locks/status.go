package locks

import (
	"iter"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
)

// Status is how this node sees one lock.
type Status struct {
	Phase    dmutex.Phase
	Holder   dmutex.NodeID // as far as this node knows
	Fence    uint64
	Age      time.Duration
	Waiters  int
	WaitsFor []dmutex.NodeID
}

// Status returns how this node sees the lock now.
func (t *Table) Status(name string) Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil {
		return l.status()
	}
	return Status{}
}

func (l *lock) status() Status {
	st := Status{Holder: l.holder(), Waiters: len(l.waiters)}
	if l.machine != nil {
		st.Phase = l.machine.Phase()
		st.WaitsFor = l.machine.WaitsFor(nil)
	}
	switch now := l.table.cfg.Mail.Now(); {
	case l.held != nil: // also while the view does not act
		st.Phase, st.Fence, st.Age = dmutex.Held, l.held.fence, time.Duration(now-l.held.since)
	case len(l.waiters) > 0:
		st.Phase, st.Age = dmutex.Waiting, time.Duration(now-l.waiters[0].since)
	}
	return st
}

// atOnce is how many locks are looked at while the others wait.
const atOnce = 256

// some calls look for all locks, a few at a time under the mutex.
func (t *Table) some(look func(locks []*lock) (more bool)) {
	t.mu.Lock()
	all := t.all()
	t.mu.Unlock()
	for part := range slices.Chunk(all, atOnce) {
		if !look(part) {
			return
		}
	}
}

// InUse returns the locks that are not at rest.
func (t *Table) InUse() iter.Seq2[string, Status] {
	return func(yield func(string, Status) bool) {
		t.some(func(locks []*lock) bool {
			for name, st := range t.inUse(locks) {
				if !yield(name, st) {
					return false
				}
			}
			return true
		})
	}
}

func (t *Table) inUse(locks []*lock) map[string]Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	states := make(map[string]Status)
	for _, l := range locks {
		if t.locks[l.name] == l && !l.atRest() {
			states[l.name] = l.status()
		}
	}
	return states
}

// atRest reports whether the lock is kept only for what it remembers.
func (l *lock) atRest() bool {
	if l.held != nil || len(l.waiters) > 0 {
		return false
	}
	if l.machine == nil {
		return true
	}
	_, _, fresh := l.machine.Forget()
	keeper, ok := l.machine.(dmutex.Keeper)
	return fresh || ok && keeper.Keeps()
}

// Usage sums up the locks.
type Usage struct {
	Held       int           // locks that this node holds
	Waiting    int           // locks that it waits for
	Waiters    int           // goroutines that wait for a lock
	OldestHold time.Duration // the highest Age of those held
	OldestWait time.Duration // the highest Age of those waited for
}

// Usage looks at every lock.
func (t *Table) Usage() (u Usage) {
	t.some(func(locks []*lock) bool {
		t.mu.Lock()
		defer t.mu.Unlock()
		now := t.cfg.Mail.Now()
		for _, l := range locks {
			u.Waiters += len(l.waiters)
			switch {
			case l.held != nil:
				u.Held++
				u.OldestHold = max(u.OldestHold, time.Duration(now-l.held.since))
			case len(l.waiters) > 0:
				u.Waiting++
				u.OldestWait = max(u.OldestWait, time.Duration(now-l.waiters[0].since))
			}
		}
		return true
	})
	return u
}

// Counts is what a Table has counted.
type Counts struct {
	Locks          int // that it has now
	Granted        uint64
	Sent, Received [dmutex.Kinds]uint64
}

// Counts returns what was counted until now.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.counts
	c.Locks = len(t.locks)
	return c
}

// WaitsFor appends the peers whose answers the request for a lock lacks.
func (t *Table) WaitsFor(b []dmutex.NodeID, name string) []dmutex.NodeID {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil && l.machine != nil {
		b = l.machine.WaitsFor(b)
	}
	return b
}

// Lends returns the node to which this one has lent the lock: see [dmutex.Lender].
func (t *Table) Lends(name string) (to dmutex.NodeID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.locks[name]; l != nil && l.machine != nil {
		if m, ok := l.machine.(dmutex.Lender); ok {
			to = m.Lends()
		}
	}
	return to
}
