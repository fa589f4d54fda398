package deadlocktest

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/internal/explore"
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
	Ordered     bool  // a transaction that holds a lock asks for later ones only: there are no circles
	Lent        bool  // every lock has a coordinator, which knows the holder; otherwise all nodes are asked

	Follow func(*deadlock.Chase, deadlock.Locks) (dmutex.NodeID, bool) // nil is deadlock's own

	MaxStates int                    // stop after about so many; 0 does not
	Progress  func(ChaseReport) bool // called from time to time; false stops. May be nil
}

// ErrTwice says that two waits were ended for one circle.
var ErrTwice = errors.New("two victims")

// chases is the state of a Chases.
type chases struct {
	*Chases
	nodes              []dmutex.NodeID
	txns               []txn
	locks              []int // the holder of each, none if it is free
	wire               []flight
	withdrawals, early int
	declared           []string // the circles for which a wait was ended
	log                *strings.Builder
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
	chase *deadlock.Chase
	true  bool // when its first lap ended there was this circle
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
func (w *chases) Clone() *chases {
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

// name writes a lock as the chases have it.
func name(lock int) string { return string(rune('a' + lock)) }

func (w *chases) holds(t int) bool {
	return slices.Contains(w.locks, t)
}

// A chaseStep is something that may happen next.
type chaseStep struct {
	what string
	a, b int
}

// Steps lists what may happen.
func (w *chases) Steps() (steps []chaseStep) {
	for i, t := range w.txns {
		switch {
		case t.waits != none:
			if w.locks[t.waits] == none {
				steps = append(steps, chaseStep{"is granted", i, t.waits})
			}
			if w.withdrawals > 0 {
				steps = append(steps, chaseStep{"withdraws", i, t.waits})
			}
			if t.chases > 0 && w.holds(i) {
				steps = append(steps, chaseStep{"begins a chase", i, none})
			}
		case t.acquires > 0:
			steps = append(steps, w.acquires(i)...)
		}
		for k, holder := range w.locks {
			if holder == i && (t.waits == none || w.early > 0) {
				steps = append(steps, chaseStep{"releases", i, k})
			}
		}
	}
	for k := range w.wire {
		steps = append(steps, chaseStep{"arrives", none, k})
	}
	return steps
}

func (w *chases) acquires(i int) (steps []chaseStep) {
	lowest := 0
	for k, holder := range w.locks {
		if holder == i && w.Ordered {
			lowest = k + 1
		}
	}
	for k := lowest; k < len(w.locks); k++ {
		if w.locks[k] != i {
			steps = append(steps, chaseStep{"asks for", i, k})
		}
	}
	return steps
}

// Name tells a step.
func (w *chases) Name(s chaseStep) string {
	switch s.what {
	case "arrives":
		f := w.wire[s.b]
		return fmt.Sprintf("a chase of %d arrives at node %v", f.chase.Path[0].Txn, f.to)
	case "begins a chase":
		return fmt.Sprintf("%d begins a chase", s.a+1)
	case "is granted", "withdraws":
		return fmt.Sprintf("%d, which waits for %s, %s", s.a+1, name(s.b), s.what)
	}
	return fmt.Sprintf("%d %s %s", s.a+1, s.what, name(s.b))
}

// Do does a step. It returns what is wrong with it.
func (w *chases) Do(s chaseStep) error {
	switch s.what {
	case "asks for":
		alone := w.locks[s.b] == none && !slices.ContainsFunc(w.txns, func(t txn) bool { return t.waits == s.b })
		t := &w.txns[s.a]
		t.acquires--
		t.number++
		t.waits, t.chases = s.b, w.Chases.Chases
		if alone {
			w.grant(s.a)
		}
	case "is granted":
		w.grant(s.a)
	case "withdraws":
		w.withdrawals--
		w.txns[s.a].waits = none
	case "releases":
		if w.txns[s.a].waits != none {
			w.early--
		}
		w.locks[s.b] = none
	case "begins a chase":
		w.txns[s.a].chases--
		here := view{w, w.At[s.a]}
		return w.follow(here, flight{here.node, w.chase(s.a), false})
	case "arrives":
		f := w.wire[s.b]
		w.wire = slices.Delete(w.wire, s.b, s.b+1)
		c := *f.chase
		c.Path, c.Ask = slices.Clone(c.Path), slices.Clone(c.Ask)
		f.chase = &c
		return w.follow(view{w, f.to}, f)
	}
	return nil
}

func (w *chases) grant(t int) {
	w.locks[w.txns[t].waits] = t
	w.txns[t].waits = none
}

func (w *chases) chase(t int) *deadlock.Chase {
	return deadlock.NewChase(uint64(t), w.wait(t), view{w, w.At[t]})
}

func (w *chases) wait(t int) deadlock.Wait {
	wait := deadlock.Wait{Node: w.At[t], Txn: uint64(t + 1)}
	if waits := w.txns[t].waits; waits != none {
		wait.Number, wait.Lock = uint64(w.txns[t].number), name(waits)
	}
	return wait
}

// follow takes a chase as far as a node can, sends it on, or ends a wait.
func (w *chases) follow(here view, f flight) error {
	follow := w.Follow
	if follow == nil {
		follow = (*deadlock.Chase).Follow
	}
	first := f.chase.Checked == 0
	next, found := follow(f.chase, here)
	if first && f.chase.Checked > 0 {
		f.true = w.circle(f.chase.Path)
	}
	if next != dmutex.None {
		f.to = next
		w.wire = append(w.wire, f)
	}
	if !found {
		return nil
	}
	path := f.chase.Path
	t, circle := int(path[0].Txn)-1, describe(path)
	switch {
	case !f.true:
		return explore.Wrong(ErrPhantom, "%d ends its wait for a circle that never was: %s", t+1, circle)
	case slices.Contains(w.declared, circle):
		return explore.Wrong(ErrTwice, "%d ends its wait for a circle for which another did: %s", t+1, circle)
	}
	w.declared = append(slices.Clip(w.declared), circle)
	if w.log != nil {
		w.log.WriteString("    and a wait is ended\n")
	}
	w.txns[t].waits = none
	return nil
}

// describe names a circle by its waits, the same whichever member found it.
func describe(path []deadlock.Wait) string {
	first := slices.IndexFunc(path, func(p deadlock.Wait) bool {
		return !slices.ContainsFunc(path, func(q deadlock.Wait) bool { return q.Txn < p.Txn })
	})
	var b []byte
	for i := range path {
		p := path[(first+i)%len(path)]
		b = fmt.Appendf(b, "%d waits for %s (its wait %d), held by ", p.Txn, p.Lock, p.Number)
	}
	return string(fmt.Appendf(b, "%d", path[first].Txn))
}

// circle reports whether each waits for a lock that the next one holds.
func (w *chases) circle(path []deadlock.Wait) bool {
	for i, p := range path {
		next := path[(i+1)%len(path)]
		t, n := int(p.Txn)-1, int(next.Txn)-1
		k := w.txns[t].waits
		if k == none || name(k) != p.Lock || uint64(w.txns[t].number) != p.Number || w.locks[k] != n {
			return false
		}
	}
	return true
}

// standing checks every present circle: if nothing else happens, the chase of its
// youngest member finds it, and no other member's chase does.
func (w *chases) standing() error {
	for t := range w.txns {
		members := w.around(t)
		if len(members) == 0 {
			continue
		}
		finds := w.chaseAlone(t)
		switch youngest := t == slices.Max(members); {
		case youngest && !finds:
			return explore.Wrong(ErrMissed, "%d does not find the circle in which it is", t+1)
		case !youngest && finds:
			return explore.Wrong(ErrTwice, "%d finds the circle in which it is, and %d is younger", t+1, slices.Max(members)+1)
		}
	}
	return nil
}

// around returns the circle that a transaction is in; nothing if it is in none.
func (w *chases) around(t int) (members []int) {
	for at := t; ; {
		members = append(members, at)
		k := w.txns[at].waits
		if k == none || w.locks[k] == none || len(members) > len(w.txns) {
			return nil
		}
		if at = w.locks[k]; at == t {
			return members
		}
	}
}

// chaseAlone runs a chase while nothing else happens.
func (w *chases) chaseAlone(t int) bool {
	follow := w.Follow
	if follow == nil {
		follow = (*deadlock.Chase).Follow
	}
	c := w.chase(t)
	for at := w.At[t]; ; {
		next, found := follow(c, view{w, at})
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

func (v view) Holder(lock string) (w deadlock.Wait, began uint64, held bool) {
	t := v.locks[lock[0]-'a']
	if t == none || v.At[t] != v.node {
		return deadlock.Wait{}, 0, false
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
	b := []byte{}
	for i, t := range w.txns {
		b = strconv.AppendInt(append(b, "  "...), int64(i+1), 10)
		for k, holder := range w.locks {
			if holder == i {
				b = append(append(b, " holds "...), name(k)...)
			}
		}
		if t.waits != none {
			b = append(append(b, " waits for "...), name(t.waits)...)
		}
		b = append(b, '\n')
	}
	return string(b)
}
