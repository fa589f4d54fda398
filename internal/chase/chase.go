// Package chase finds cycles of transactions that wait for each other's locks, for package
// node. Unlike the machines of package deadlock, it knows the locks. So it needs no memory
// and no order, sends no flood of messages, names one victim, and is right even if waits are
// withdrawn and locks released at any time.
package chase

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
)

// A Chase is a probe that follows a wait to the holder of the lock, and the holder's own
// wait to the next. It is plain data and the whole state of a detection: the nodes keep none.
//
// # Theory of operation
//
// A transaction waits for at most one lock, and a lock has at most one holder (the
// single-request model): at most one edge leaves a transaction, to that holder. So the
// chase that a transaction begins goes from edge to edge, as one message at a time, until it
// ends at a transaction that does not wait, or comes back.
//
// The edges to holders are enough, although a waiter also waits for those ahead of it in
// the queue: these wait for the same lock and no other, so the way leads from them to the
// same holder. While a lock has no holder, as it passes from one to the next, no
// transaction is stuck; a cycle that forms then is complete when the grant has arrived.
//
// One victim. Transactions are ordered by age: by the time at which they began, by
// node, by number. A chase ends at one that is younger than its own. So of the
// chases of a cycle only that of the youngest comes back, and there is one victim.
// No transaction ever ends the wait of another. A transaction that is abandoned and
// retried with its old age is eventually no longer the youngest, so none starves.
//
// No phantom. Waits may be withdrawn and locks released early, so what the chase saw
// first may be gone when it comes back. Therefore it goes around twice. The first
// lap records in which of its waits each transaction is, and for which lock. The
// second lap checks that it is still in that wait, and holds the lock that the one
// before it waits for. Waits are numbered and no number is used again, so a wait
// that is seen twice lasted all the time in between. During it the transaction
// acquired nothing, so what it holds at the second lap it held all the time.
// Hence, when the first lap ended, each transaction waited for a lock that the next
// one held: there was a cycle. (Afek and others, "Atomic Snapshots of Shared
// Memory", JACM 40(4), 1993, call it a double collect.) If a wait was withdrawn
// since then, the cycle is gone, and the victim's wait is ended unnecessarily.
//
// None missed. A cycle that no transaction leaves stands still. When the grants
// have arrived, a chase that its youngest member begins finds each edge, by the
// first law of [dmutex.Machine.WaitsFor], and comes back twice. So the youngest must
// begin one from time to time while it waits.
//
// The way along an edge. The holder is among the nodes that the waiting node awaits
// ([dmutex.Machine.WaitsFor]), which are asked one after another; one that has lent its
// vote or grant first sends the question on to the borrower. The second lap knows the way.
//
// Count. In the first lap an edge costs no message if both ends are at one node, otherwise
// one for each node that is asked and each borrower, so at most 2(N-1) (and 2 where there
// is a coordinator); in the second lap at most one. They come one after another.
//
// The model and the single victim are from Mitchell and Merritt, "A Distributed Algorithm
// for Deadlock Detection and Resolution", PODC 1984; probes that end at transactions of
// another priority from Sinha and Natarajan, "A Priority Based Distributed Deadlock
// Detection Algorithm", IEEE TSE 11(1), 1985; keeping the age across a retry from
// Rosenkrantz, Stearns and Lewis, "System Level Concurrency Control for Distributed
// Database Systems", ACM TODS 3(2), 1978.
type Chase struct {
	Began uint64 // when the chase's own transaction began; see Locks.Holder
	Path  []Wait // the first is its own; each waits for a lock that the next holds

	// The first lap: the nodes that are still to be asked who holds the lock of the last
	// wait, and whether a Lender has sent this question on.
	Ask  []dmutex.NodeID
	Lent bool

	// Checked is 0 in the first lap; in the second, one more than the edges seen again.
	Checked int
}

// A Wait is a transaction that waits.
type Wait struct {
	Node   dmutex.NodeID
	Txn    uint64 // its number at its node, never used again
	Number uint64 // which of its waits it is in, counted from 1; 0 if it does not wait
	Lock   string // what it waits for
}

// MaxPath is the length of the longest cycle that a chase finds. A longer chase ends.
const MaxPath = 64

// Locks is what a node knows about the locks at this node. Each answer is true
// when it is given; the answers need not be consistent with each other.
type Locks interface {
	Self() dmutex.NodeID

	// Holder reports whether the lock is held at this node, and returns the
	// transaction that holds it, in its present wait, and when it began. If it
	// is held by no transaction, w is the zero Wait.
	Holder(lock string) (w Wait, began uint64, held bool)

	// WaitsFor and Lends are those of this node's machine, if it has one.
	WaitsFor(b []dmutex.NodeID, lock string) []dmutex.NodeID
	Lends(lock string) dmutex.NodeID
}

// New returns the chase of a transaction that waits. Its own node calls Follow.
func New(began uint64, w Wait, here Locks) *Chase {
	return &Chase{Began: began, Path: []Wait{w}, Ask: here.WaitsFor(nil, w.Lock)}
}

// Follow advances the chase as far as this node can. It returns the node to which the chase
// must go next, or None if the chase is over: then found reports whether Path is a cycle.
// To break it, end its first wait, which is one of this node's. In the first lap, if the
// next node cannot be reached, call Follow again: it looks for another.
//
// Follow is safe no matter what the chase contains. A forged chase can at worst end the
// wait of a transaction that holds a lock.
func (c *Chase) Follow(here Locks) (next dmutex.NodeID, found bool) {
	if len(c.Path) == 0 || len(c.Path) > MaxPath || c.Checked < 0 || c.Checked > len(c.Path) {
		return dmutex.None, false
	}
	for c.Checked == 0 {
		w, began, held := here.Holder(c.Path[len(c.Path)-1].Lock)
		switch at := slices.IndexFunc(c.Path, func(p Wait) bool { return p.Node == w.Node && p.Txn == w.Txn }); {
		case !held:
			return c.seek(here), false
		case w.Number == 0:
			return dmutex.None, false
		case at == 0:
			c.Checked = 1
		case at > 0 || c.older(w, began) || len(c.Path) == MaxPath: // or in a cycle that does not lead back to its beginning
			return dmutex.None, false
		default:
			c.Path = append(c.Path, w)
			c.Ask, c.Lent = here.WaitsFor(c.Ask[:0], w.Lock), false
		}
	}
	for ; c.Checked <= len(c.Path); c.Checked++ {
		w := c.Path[c.Checked%len(c.Path)]
		if w.Node != here.Self() {
			return w.Node, false
		}
		if now, _, held := here.Holder(c.Path[c.Checked-1].Lock); !held || now != w {
			return dmutex.None, false
		}
	}
	return dmutex.None, true
}

// seek returns the node to ask next about the lock of the last transaction.
func (c *Chase) seek(here Locks) dmutex.NodeID {
	for {
		if to := here.Lends(c.Path[len(c.Path)-1].Lock); !c.Lent && to != dmutex.None && to != here.Self() {
			c.Lent = true
			return to
		}
		c.Lent = false
		if len(c.Ask) == 0 {
			return dmutex.None
		}
		next := c.Ask[0]
		c.Ask = slices.Delete(c.Ask, 0, 1)
		if next != here.Self() {
			return next
		}
	}
}

// older reports whether the chase is that of an older transaction.
func (c *Chase) older(than Wait, began uint64) bool {
	first := c.Path[0]
	return cmp.Or(cmp.Compare(c.Began, began), cmp.Compare(first.Node, than.Node), cmp.Compare(first.Txn, than.Txn)) < 0
}
