package deadlocktest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/search"
)

// Chases is a small group of transactions that take locks in any order, and
// chase the transactions that they wait for. [Chases.Explore] tries every order
// of events: which transaction asks for which lock, when a free lock is granted
// and to which of them, which locks are released early and which waits are
// withdrawn, when a chase begins and when each of its messages arrives.
//
// A transaction is younger than those before it. The locks themselves are
// atomic: of a machine a chase needs only the first law of [dmutex.Machine.WaitsFor].
type Chases struct {
	At          []dmutex.NodeID // at which node each transaction is
	Locks       int
	Acquires    []int // how often each transaction may ask for a lock
	Chases      int   // how often it may begin a chase in each wait
	Withdrawals int   // waits that are withdrawn, at most
	Early       int   // locks that are released by a transaction that waits, at most
	Ordered     bool  // a transaction that holds a lock asks for later ones only: there are no cycles
	Lent        bool  // every lock has a coordinator, which knows the holder; otherwise all nodes are asked

	Follow func(*chase.Chase, chase.Locks) (dmutex.NodeID, bool) // nil is chase's own
}

// ErrTwice says that two waits were ended for one cycle.
var ErrTwice = errors.New("two victims")

// Explore visits every state, shortest runs first. It checks that a transaction
// that ends its wait was in a cycle, that the cycle loses no other wait, and that
// the youngest member of every cycle would find it if it stayed. It returns a
// [*search.Violation] with a shortest run to the first state that is wrong, and in
// any case how far it came. In some states there is a cycle; a victim is a step by which a
// wait is ended.
func (t *Chases) Explore(limits search.Limits) (r search.Report, victims int, err error) {
	r, err = search.Search[*chases, chaseEvent]{
		Limits: limits,
		First:  t.begin(),
		State:  (*chases).standing,
		Some:   (*chases).cyclic,
		Step: func(before, after *chases) error {
			victims += len(after.declared) - len(before.declared)
			return nil
		},
		Script: func(told string, w *chases, v *search.Violation) string {
			return fmt.Sprintf("%s\n%v\n%v: %s\n", told, w, v.Kind, v.Why)
		},
	}.Run()
	return r, victims, err
}

// chases is the state of a Chases.
type chases struct {
	*Chases
	nodes              []dmutex.NodeID
	txns               []txn
	locks              []int // the holder of each, none if it is free
	wire               []flight
	withdrawals, early int
	declared           []string // the cycles for which a wait was ended
}

type txn struct {
	acquires int
	number   int // of its waits
	waits    int // for which lock, -1 for none
	chases   int // left in this wait
}

// A flight is a chase in flight.
type flight struct {
	to    dmutex.NodeID
	chase *chase.Chase
	true  bool // when its first lap ended there was this cycle
}

const none = -1

func (t *Chases) begin() *chases {
	w := &chases{Chases: t, withdrawals: t.Withdrawals, early: t.Early}
	for i, node := range t.At {
		if !slices.Contains(w.nodes, node) {
			w.nodes = append(w.nodes, node)
		}
		w.txns = append(w.txns, txn{acquires: t.Acquires[i%len(t.Acquires)], waits: none})
	}
	w.locks = slices.Repeat([]int{none}, t.Locks)
	return w
}

// Clone returns a copy.
func (w *chases) Clone(*chases) *chases {
	c := *w
	c.txns, c.locks, c.wire = slices.Clone(w.txns), slices.Clone(w.locks), slices.Clone(w.wire)
	return &c
}

// AppendState appends the canonical state.
func (w *chases) AppendState(b []byte) []byte {
	b = append(b, byte(w.withdrawals), byte(w.early))
	for _, t := range w.txns {
		b = append(b, byte(t.acquires), byte(t.number), byte(t.waits), byte(t.chases))
	}
	for _, holder := range w.locks {
		b = append(b, byte(holder))
	}
	lines := slices.Clone(w.declared)
	for _, f := range w.wire {
		lines = append(lines, f.String())
	}
	slices.Sort(lines)
	for _, line := range lines {
		b = append(append(b, line...), '\n')
	}
	return b
}

func (f flight) String() string {
	c := f.chase
	return fmt.Sprint(f.to, f.true, c.Checked, c.Lent, c.Ask, c.Path)
}

// A lock is written as the chases have it.
type lock int

func (k lock) String() string { return string(rune('a' + k)) }

type chaseEvent = search.Event[*chases]

// Do takes a step.
func (w *chases) Do(step chaseEvent) error { return step.Do(w) }

// Steps lists what may happen.
func (w *chases) Steps(steps []chaseEvent) []chaseEvent {
	add := func(do func(*chases) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	for i, t := range w.txns {
		switch {
		case t.waits != none:
			if w.locks[t.waits] == none {
				add(func(w *chases) error { w.grant(i); return nil }, "%d, which waits for %v, is granted", i+1, lock(t.waits))
			}
			if w.withdrawals > 0 {
				add(func(w *chases) error { w.withdrawals--; w.txns[i].waits = none; return nil }, "%d, which waits for %v, withdraws", i+1, lock(t.waits))
			}
			if t.chases > 0 && slices.Contains(w.locks, i) {
				add(func(w *chases) error {
					w.txns[i].chases--
					return w.follow(view{w, w.At[i]}, flight{chase: w.chase(i)})
				}, "%d begins a chase", i+1)
			}
		case t.acquires > 0:
			for k := w.lowest(i); k < len(w.locks); k++ {
				if w.locks[k] != i {
					add(func(w *chases) error { w.acquire(i, k); return nil }, "%d asks for %v", i+1, lock(k))
				}
			}
		}
		for k, holder := range w.locks {
			if holder == i && (t.waits == none || w.early > 0) {
				add(func(w *chases) error {
					if w.txns[i].waits != none {
						w.early--
					}
					w.locks[k] = none
					return nil
				}, "%d releases %v", i+1, lock(k))
			}
		}
	}
	for k, f := range w.wire {
		add(func(w *chases) error {
			f := w.wire[k]
			w.wire = slices.Delete(w.wire, k, k+1)
			c := *f.chase
			c.Path, c.Ask = slices.Clone(c.Path), slices.Clone(c.Ask)
			f.chase = &c
			return w.follow(view{w, f.to}, f)
		}, "a chase of %d arrives at node %v", f.chase.Path[0].Txn, f.to)
	}
	return steps
}

// lowest returns the first lock that a transaction may ask for.
func (w *chases) lowest(t int) (k int) {
	for ; w.Ordered && slices.Contains(w.locks[k:], t); k++ {
	}
	return k
}

func (w *chases) acquire(t, k int) {
	alone := w.locks[k] == none && !slices.ContainsFunc(w.txns, func(t txn) bool { return t.waits == k })
	txn := &w.txns[t]
	txn.acquires--
	txn.number++
	txn.waits, txn.chases = k, w.Chases.Chases
	if alone {
		w.grant(t)
	}
}

func (w *chases) grant(t int) {
	w.locks[w.txns[t].waits] = t
	w.txns[t].waits = none
}

func (w *chases) chase(t int) *chase.Chase {
	return chase.New(uint64(t), w.wait(t), view{w, w.At[t]})
}

func (w *chases) wait(t int) chase.Wait {
	wait := chase.Wait{Node: w.At[t], Txn: uint64(t + 1)}
	if waits := w.txns[t].waits; waits != none {
		wait.Number, wait.Lock = uint64(w.txns[t].number), lock(waits).String()
	}
	return wait
}

// follow takes a chase as far as a node can, sends it on, or ends a wait.
func (w *chases) follow(here view, f flight) error {
	first := f.chase.Checked == 0
	next, found := w.step(f.chase, here)
	if first && f.chase.Checked > 0 {
		f.true = w.cycle(f.chase.Path)
	}
	if next != dmutex.None {
		f.to = next
		w.wire = append(w.wire, f)
	}
	if !found {
		return nil
	}
	path := f.chase.Path
	t, cycle := int(path[0].Txn)-1, describe(path)
	switch {
	case !f.true:
		return search.Wrong(ErrPhantom, "%d ends its wait for a cycle that never was: %s", t+1, cycle)
	case slices.Contains(w.declared, cycle):
		return search.Wrong(ErrTwice, "%d ends its wait for a cycle for which another did: %s", t+1, cycle)
	}
	w.declared = append(slices.Clip(w.declared), cycle)
	w.txns[t].waits = none
	return nil
}

// describe names a cycle by its waits, the same whichever member found it.
func describe(path []chase.Wait) string {
	first := slices.IndexFunc(path, func(p chase.Wait) bool {
		return !slices.ContainsFunc(path, func(q chase.Wait) bool { return q.Txn < p.Txn })
	})
	var b []byte
	for i := range path {
		p := path[(first+i)%len(path)]
		b = fmt.Appendf(b, "%d waits for %s (its wait %d), held by ", p.Txn, p.Lock, p.Number)
	}
	return string(fmt.Appendf(b, "%d", path[first].Txn))
}

// cycle reports whether each waits for a lock that the next one holds.
func (w *chases) cycle(path []chase.Wait) bool {
	for i, p := range path {
		next := path[(i+1)%len(path)]
		t, n := int(p.Txn)-1, int(next.Txn)-1
		k := w.txns[t].waits
		if k == none || lock(k).String() != p.Lock || uint64(w.txns[t].number) != p.Number || w.locks[k] != n {
			return false
		}
	}
	return true
}

// standing checks every present cycle: if nothing else happens, the chase of its
// youngest member finds it, and no other member's chase does.
func (w *chases) standing() error {
	for t := range w.txns {
		youngest, cycle := w.around(t)
		if !cycle {
			continue
		}
		switch finds := w.chaseAlone(t); {
		case t == youngest && !finds:
			return search.Wrong(ErrMissed, "%d does not find the cycle in which it is", t+1)
		case t != youngest && finds:
			return search.Wrong(ErrTwice, "%d finds the cycle in which it is, and %d is younger", t+1, youngest+1)
		}
	}
	return nil
}

func (w *chases) cyclic() bool {
	for t := range w.txns {
		if _, cycle := w.around(t); cycle {
			return true
		}
	}
	return false
}

// around follows the waits of a transaction. It reports whether they come back to it, and
// the youngest in that cycle.
func (w *chases) around(t int) (youngest int, cycle bool) {
	youngest = t
	for at, n := t, 0; n < len(w.txns); n++ {
		k := w.txns[at].waits
		if k == none || w.locks[k] == none {
			return 0, false
		}
		if at = w.locks[k]; at == t {
			return youngest, true
		}
		youngest = max(youngest, at)
	}
	return 0, false
}

// step is how a chase goes on at a node.
func (t *Chases) step(c *chase.Chase, here chase.Locks) (next dmutex.NodeID, found bool) {
	if t.Follow != nil {
		return t.Follow(c, here)
	}
	return c.Follow(here)
}

// chaseAlone runs a chase while nothing else happens.
func (w *chases) chaseAlone(t int) bool {
	c := w.chase(t)
	for at := w.At[t]; ; {
		next, found := w.step(c, view{w, at})
		if found || next == dmutex.None {
			return found
		}
		at = next
	}
}

// A view is what a node knows.
type view struct {
	*chases
	node dmutex.NodeID
}

func (v view) Self() dmutex.NodeID { return v.node }

func (v view) Holder(lock string) (w chase.Wait, began uint64, held bool) {
	t := v.locks[lock[0]-'a']
	if t == none || v.At[t] != v.node {
		return chase.Wait{}, 0, false
	}
	return v.wait(t), uint64(t), true
}

func (v view) WaitsFor(b []dmutex.NodeID, lock string) []dmutex.NodeID {
	for k, node := range v.nodes {
		if node != v.node && (!v.Lent || k == int(lock[0]-'a')%len(v.nodes)) {
			b = append(b, node)
		}
	}
	return b
}

func (v view) Lends(lock string) dmutex.NodeID {
	k := int(lock[0] - 'a')
	if v.Lent && v.nodes[k%len(v.nodes)] == v.node && v.locks[k] != none {
		return v.At[v.locks[k]]
	}
	return dmutex.None
}

func (w *chases) String() string {
	var b []byte
	for i, t := range w.txns {
		b = fmt.Appendf(b, "  %d", i+1)
		for k, holder := range w.locks {
			if holder == i {
				b = fmt.Appendf(b, " holds %v", lock(k))
			}
		}
		if t.waits != none {
			b = fmt.Appendf(b, " waits for %v", lock(t.waits))
		}
		b = append(b, '\n')
	}
	return string(b)
}

// Tell writes a step, and whether a wait ends in it.
func (w *chases) Tell(b []byte, step chaseEvent, after *chases) []byte {
	b = fmt.Appendln(b, step)
	if len(after.declared) > len(w.declared) {
		b = append(b, "    and a wait is ended\n"...)
	}
	return b
}
