package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A Txn is a transaction: a set of locks that belong together. It takes them one after
// another, and [Txn.Release] gives them all back. Its methods are safe for concurrent use.
//
// Transactions that hold locks can wait for each other in a cycle, at one node or at
// several. With Config.Deadlock such a cycle is found: the Acquire of its youngest transaction
// ends with [ErrDeadlock]. That transaction keeps its locks, and the others go on
// when it has released them. So:
//
//	txn := n.Txn()
//	for {
//		err := work(ctx, txn) // Acquire, Acquire, and what is to be done
//		if err := errors.Join(txn.Release(), err); !errors.Is(err, node.ErrDeadlock) {
//			return err
//		}
//	}
//
// Retry with the same Txn, because it keeps its age: eventually it is no longer the
// youngest. For other work use another Txn. Detection sees only locks that a Txn holds, not
// those taken by [Mutex.Acquire].
type Txn struct {
	node *Node
	id   uint64 // among the transactions of the node

	busy atomic.Bool // an Acquire is under way

	mu      sync.Mutex    // guards the fields below; before the mutex of the locks
	held    []*locks.Held // in the order in which they were acquired; some may have ended
	began   uint64        // the wall clock, in Unix nanoseconds, when it first waited while it held something; 0 before
	number  uint64        // how many such waits it has begun
	waiting *locks.Waiter // the present wait, if any
}

// Txn returns a new transaction, which holds nothing. A transaction that holds
// nothing can simply be dropped.
func (n *Node) Txn() *Txn { return &Txn{node: n, id: n.numbers.Add(1)} }

// AcquireAll takes several locks in the order of their names, and returns the transaction that
// holds them. Transactions that take all their locks with one AcquireAll each never wait for
// each other in a cycle; others may, and then the error may be [ErrDeadlock].
//
// If a lock cannot be acquired, AcquireAll releases those that were, and returns the error of
// [Txn.Acquire]. It refuses an invalid name, or one that is given twice, before it takes any lock.
func (n *Node) AcquireAll(ctx context.Context, names ...string) (all *Txn, err error) {
	names = slices.Sorted(slices.Values(names))
	for i, name := range names {
		if err := lawful(name); err != nil {
			return nil, err
		}
		if i > 0 && name == names[i-1] {
			return nil, dmutex.Misuse(fmt.Sprintf("lock %q is named twice: locks are not re-entrant", name))
		}
	}
	t := n.Txn()
	defer func() {
		if all == nil { // also if an Observer panics
			if lost := t.Release(); lost != nil {
				err = errors.Join(err, lost)
			}
		}
	}()
	for _, name := range names {
		if _, err := t.Acquire(ctx, name); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Acquire waits for the lock of that name as [Mutex.Acquire] does, and adds it to the
// transaction. The handle may be released by itself, before the others.
//
// It refuses, with [dmutex.ErrMisuse], a lock that the transaction holds, and a second Acquire at
// the same time. Once a lock of the transaction is lost with the node's lease, Acquire ends with
// its [ErrLost], until the transaction is released. With Config.Deadlock it may fail with
// [ErrDeadlock], in an [Error] that names the cycle.
func (t *Txn) Acquire(ctx context.Context, name string) (lock.Held, error) {
	return handle(t.acquire(ctx, name))
}

func (t *Txn) acquire(ctx context.Context, name string) (*locks.Held, error) {
	if t.node == nil || t.node.group == nil {
		return nil, errUnmade
	}
	if !t.busy.CompareAndSwap(false, true) {
		return nil, dmutex.Misuse("an Acquire of this Txn is under way: a transaction waits for one lock at a time")
	}
	defer t.busy.Store(false)
	m, lapsed := t.node.Mutex(name), t.node.locks.Lapsed()
	holds, err := t.holds(name)
	if err != nil {
		return nil, err
	}
	if holds {
		m.txn, m.lapsed = t, lapsed
	}
	h, err := m.acquire(ctx, false)
	if err != nil {
		return nil, err
	}
	if t.node.cfg.Deadlock > 0 {
		h.Own(t)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = append(t.held, h)
	return h, nil
}

// holds reports whether the transaction holds a lock. It looks at each once, and returns
// the ErrLost of one that is lost, or a misuse if it holds the lock of that name.
func (t *Txn) holds(name string) (holds bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = slices.DeleteFunc(t.held, (*locks.Held).Released)
	for _, h := range t.held {
		switch err := h.Noticed(); {
		case errors.Is(err, ErrLost):
			return false, public(h.Lock(), err)
		case err != nil: // released just now
		case h.Lock() == name:
			return false, dmutex.Misuse(fmt.Sprintf("this Txn holds lock %q: locks are not re-entrant", name))
		default:
			holds = true
		}
	}
	return holds, nil
}

// Held returns the handle of a lock that the transaction has acquired, for example to
// read its fence. It returns nil if there is none or it was released.
func (t *Txn) Held(name string) lock.Held {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range slices.Backward(t.held) {
		if h.Lock() == name && !h.Released() {
			return h
		}
	}
	return nil
}

// Release gives back what the transaction still holds, the latest lock first. It returns nil, or
// an [ErrLost] that names the locks that had been lost. Then the transaction may acquire again.
// An Acquire that is under way goes on, and the lock that it brings must be released, too.
func (t *Txn) Release() (err error) {
	t.mu.Lock()
	held := t.held
	t.held = nil
	t.mu.Unlock()
	for _, h := range held {
		defer func() { // so the latest is first, and all are released even if an Observer panics
			if lost := h.Release(); lost != nil {
				err = errors.Join(err, public(h.Lock(), lost))
			}
		}()
	}
	return nil
}

// probeBacklog bounds what may wait for a peer's acknowledgement, in bytes, when a probe is sent
// to it: probes leave room for requests, and one that is not sent costs time only.
const probeBacklog = 64 << 10

// ownLocks is what a node knows of its own locks.
type ownLocks struct {
	*Node
	*locks.Table
}

var _ chase.Locks = ownLocks{}

// Holder implements [chase.Locks].
func (v ownLocks) Holder(name string) (w chase.Wait, began uint64, held bool) {
	owner, held := v.Owner(name)
	if t, ok := owner.(*Txn); ok {
		w, began = t.waits()
	}
	return w, began, held
}

// WaitsFor implements [chase.Locks].
func (v ownLocks) WaitsFor(b []dmutex.NodeID, name string) []dmutex.NodeID {
	return append(b, v.Table.Status(name).WaitsFor...)
}

// wait records that the transaction waits, or with nil that it does not wait any more.
func (t *Txn) wait(w *locks.Waiter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.waiting = w; w == nil {
		return
	}
	t.number++
	if t.began == 0 {
		t.began = uint64(max(t.node.mail.Clock().Wall(), 1))
	}
}

// waits returns the present wait, with Number 0 if there is none, and when the
// transaction began.
func (t *Txn) waits() (w chase.Wait, began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w = chase.Wait{Node: t.node.Self(), Txn: t.id}
	if t.waiting != nil && !t.waiting.Over() { // its goroutine may not know yet that it is over
		w.Number, w.Lock = t.number, t.waiting.Lock()
	}
	return w, t.began
}

// chase looks for a cycle that the present wait closes.
func (t *Txn) chase() {
	if w, began := t.waits(); w.Number > 0 {
		t.node.follow(chase.New(began, w, ownLocks{t.node, t.node.locks}))
		t.node.mail.Flush()
	}
}

// follow takes a chase as far as this node can, and sends it on or breaks the cycle.
func (n *Node) follow(c *chase.Chase) {
	for {
		next, found := c.Follow(ownLocks{n, n.locks})
		switch {
		case found:
			n.breakCycle(c.Path)
			return
		case next == dmutex.None, n.sendProbe(next, c), c.Checked > 0:
			return
		}
	}
}

// breakCycle ends the first wait of a cycle, if it is not over already.
func (n *Node) breakCycle(path []chase.Wait) {
	owner, _ := n.locks.Owner(path[len(path)-1].Lock)
	t, ok := owner.(*Txn)
	if !ok {
		return
	}
	t.mu.Lock()
	w := t.waiting
	if t.id != path[0].Txn || t.number != path[0].Number {
		w = nil // the lock has been given back meanwhile, or the wait has ended
	}
	t.mu.Unlock()
	e := &Error{Lock: path[0].Lock, Err: ErrDeadlock}
	for i, wait := range path {
		e.Cycle = append(e.Cycle, Edge{wait.Node, wait.Lock, path[(i+1)%len(path)].Node})
	}
	if w != nil && w.Quit(e) {
		n.deadlocks.Add(1)
	}
}

// sendProbe sends a chase on. It does not if the peer has left or its backlog is too
// large, or if the probe is too long for the link.
func (n *Node) sendProbe(to dmutex.NodeID, c *chase.Chase) (sent bool) {
	b := (&message{says: saysProbe, probe: *c}).encode()
	if len(b) > n.mail.MaxMessage() || n.mail.Backlog(to)+len(b) > probeBacklog || n.send(to, b) != nil {
		return false
	}
	n.probes.Add(1)
	return true
}
