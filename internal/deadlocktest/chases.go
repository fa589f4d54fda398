package deadlocktest

import (
	"cmp"
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
// A transaction is younger than those before it. The locks are atomic, without machines:
// a chase relies only on the first law of [dmutex.Machine.WaitsFor].
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

// Explore visits every state, shortest runs first. It checks that a transaction that ends
// its wait was in a cycle, that the cycle loses no other wait, and that the youngest member
// of every cycle would find it if it stayed. It returns a [*search.Violation] with a
// shortest run to the first state that is wrong, and in any case how far it came.
// Report.Some counts the states with a cycle, and victims the waits that were ended.
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
	Chases
	nodes    []dmutex.NodeID
	txns     []txn
	locks    []int // the holder of each, none if it is free
	wire     []flight
	declared []string // the cycles for which a wait was ended
}

type txn struct {
	acquires int // left
	number   int // of its waits
	waits    int // for which lock, -1 for none
	chases   int // left in this wait
}

// A flight is a chase in flight.
type flight struct {
	chase.Chase
	to   dmutex.NodeID
	true bool // the cycle existed when the first lap ended
}

func (f flight) clone() flight {
	f.Path, f.Ask = slices.Clone(f.Path), slices.Clone(f.Ask)
	return f
}

func (f flight) String() string { return fmt.Sprint(f.to, f.true, f.Checked, f.Lent, f.Ask, f.Path) }

// A lock is the index of a lock, written as chases name it.
type lock int

func (k lock) String() string { return string(rune('a' + k)) }

const none = -1

func (t *Chases) begin() *chases {
	w := &chases{Chases: *t, nodes: slices.Compact(slices.Sorted(slices.Values(t.At))), locks: slices.Repeat([]int{none}, t.Locks)}
	if w.Follow == nil {
		w.Follow = (*chase.Chase).Follow
	}
	for i := range t.At {
		w.txns = append(w.txns, txn{acquires: t.Acquires[i%len(t.Acquires)], waits: none})
	}
	return w
}

func (w *chases) Clone(*chases) *chases {
	c := *w
	c.txns, c.locks, c.wire = slices.Clone(w.txns), slices.Clone(w.locks), slices.Clone(w.wire)
	return &c
}

func (w *chases) AppendState(b []byte) []byte {
	lines := slices.Clone(w.declared)
	for _, f := range w.wire {
		lines = append(lines, f.String())
	}
	slices.Sort(lines)
	return fmt.Append(b, w.Withdrawals, w.Early, w.txns, w.locks, lines)
}

type chaseEvent = search.Event[*chases]

func (w *chases) Do(step chaseEvent) error { return step.Do(w) }

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
			if w.Withdrawals > 0 {
				add(func(w *chases) error { w.Withdrawals--; w.txns[i].waits = none; return nil }, "%d, which waits for %v, withdraws", i+1, lock(t.waits))
			}
			if t.chases > 0 && slices.Contains(w.locks, i) {
				add(func(w *chases) error { w.txns[i].chases--; return w.follow(w.At[i], w.chase(i)) }, "%d begins a chase", i+1)
			}
		case t.acquires > 0:
			for k := w.lowest(i); k < len(w.locks); k++ {
				if w.locks[k] != i {
					add(func(w *chases) error { w.acquire(i, k); return nil }, "%d asks for %v", i+1, lock(k))
				}
			}
		}
		for k, holder := range w.locks {
			if holder == i && (t.waits == none || w.Early > 0) {
				add(func(w *chases) error { w.release(i, k); return nil }, "%d releases %v", i+1, lock(k))
			}
		}
	}
	for k, f := range w.wire {
		add(func(w *chases) error { w.wire = slices.Delete(w.wire, k, k+1); return w.follow(f.to, f.clone()) }, "a chase of %d arrives at node %v", f.Path[0].Txn, f.to)
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

func (w *chases) release(t, k int) {
	if w.txns[t].waits != none {
		w.Early--
	}
	w.locks[k] = none
}

func (w *chases) chase(t int) flight {
	return flight{Chase: *chase.New(uint64(t), w.wait(t), view{w, w.At[t]})}
}

func (w *chases) wait(t int) chase.Wait {
	wait := chase.Wait{Node: w.At[t], Txn: uint64(t + 1)}
	if waits := w.txns[t].waits; waits != none {
		wait.Number, wait.Lock = uint64(w.txns[t].number), lock(waits).String()
	}
	return wait
}

// follow takes a chase as far as a node can, sends it on, or ends a wait.
func (w *chases) follow(at dmutex.NodeID, f flight) error {
	first := f.Checked == 0
	next, found := w.Follow(&f.Chase, view{w, at})
	if first && f.Checked > 0 {
		f.true = w.cycle(f.Path)
	}
	if next != dmutex.None {
		f.to = next
		w.wire = append(w.wire, f)
	}
	if !found {
		return nil
	}
	victim, cycle := f.Path[0].Txn, describe(f.Path)
	switch {
	case !f.true:
		return search.Wrong(ErrPhantom, "%d ends its wait for a cycle that never was: %s", victim, cycle)
	case slices.Contains(w.declared, cycle):
		return search.Wrong(ErrTwice, "%d ends its wait for a cycle for which another did: %s", victim, cycle)
	}
	w.declared = append(slices.Clip(w.declared), cycle)
	w.txns[victim-1].waits = none
	return nil
}

// describe names a cycle by its waits, the same whichever member found it.
func describe(path []chase.Wait) string {
	oldest := slices.MinFunc(path, func(p, q chase.Wait) int { return cmp.Compare(p.Txn, q.Txn) })
	first := slices.Index(path, oldest)
	var b []byte
	for _, p := range slices.Concat(path[first:], path[:first]) {
		b = fmt.Appendf(b, "%d waits for %s (its wait %d), held by ", p.Txn, p.Lock, p.Number)
	}
	return string(fmt.Appendf(b, "%d", oldest.Txn))
}

// cycle reports whether each waits for a lock that the next one holds.
func (w *chases) cycle(path []chase.Wait) bool {
	for i, p := range path {
		t, next := int(p.Txn)-1, int(path[(i+1)%len(path)].Txn)-1
		if k := w.txns[t].waits; k == none || w.wait(t) != p || w.locks[k] != next {
			return false
		}
	}
	return true
}

// standing checks every present cycle: if nothing else happens, the chase of its
// youngest member finds it, and no other member's chase does.
func (w *chases) standing() error {
	for t := range w.txns {
		youngest := w.around(t)
		if youngest == none {
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
		if w.around(t) != none {
			return true
		}
	}
	return false
}

// around returns the youngest transaction in the cycle that t is in, or none.
func (w *chases) around(t int) (youngest int) {
	youngest = t
	at := t
	for range w.txns {
		k := w.txns[at].waits
		if k == none || w.locks[k] == none {
			return none
		}
		if at = w.locks[k]; at == t {
			return youngest
		}
		youngest = max(youngest, at)
	}
	return none
}

// chaseAlone runs a chase while nothing else happens.
func (w *chases) chaseAlone(t int) (found bool) {
	f := w.chase(t)
	for at := w.At[t]; at != dmutex.None && !found; {
		at, found = w.Follow(&f.Chase, view{w, at})
	}
	return found
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
