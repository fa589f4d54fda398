package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/hold"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A Mutex is one named lock of the group, and a [lock.Mutex]. Any number of Mutex values may
// stand for the same lock. Its methods are safe for concurrent use. It excludes goroutines of the
// same node as well as those of other nodes.
type Mutex struct {
	node   *Node
	name   string
	shared bool            // its callers share the lock
	txn    *Txn            // of the Acquire under way, if it holds other locks; else nil
	lapsed <-chan struct{} // closed when they may be lost; nil without a txn
}

// Name returns the lock's name.
func (m *Mutex) Name() string { return m.name }

// Shared returns the same lock for callers that share it: any number of them hold it at the same
// time, and nobody holds it alone then. A call waits behind those that already wait to hold it alone,
// so nobody starves. While this node shares the lock and nobody waits, a call costs no message.
//
// Do not acquire a lock under a hold of it, shared or not: if another caller waits in between, all
// wait forever. The algorithms of packages central and lamport and of ricart.New share; under others
// a call returns [ErrUnshared]. The fences of holds that share say nothing about each other: see
// fence.Gate. [Asked] of a handle is also closed when a call waits to hold the lock alone.
func (m *Mutex) Shared() lock.Mutex { return &Mutex{node: m.node, name: m.name, shared: true} }

// Acquire waits for the lock and returns the handle that holds it. It first
// waits as [Node.Ready] does.
//
// Callers of one node are served in the order of their calls. A node has one request in the
// group at a time, which begins when the last caller has released, behind the requests of
// other nodes that have arrived until then. The algorithm orders the requests of different
// nodes, so their callers may be served in another order than that of their calls.
//
// If ctx ends first, Acquire returns at once with an error that wraps ctx's, and [ErrStore] if the
// store does not answer. It names the holder if this node knows it: half a second before ctx's
// deadline it asks the others, as [Mutex.Holder] does. Nothing of the call is left behind, and no
// other node loses its turn. Other errors: [ErrClosed]; an [ErrStopped] if the node has stopped by
// itself; an [ErrLost] if the lock was granted, and lost before Acquire returned; an [Error] with a Peer if one stands
// in the way; [dmutex.ErrMisuse] for a name that is empty or too long. ctx does not bound the time that the lock is held.
func (m *Mutex) Acquire(ctx context.Context) (lock.Held, error) { return handle(m.acquire(ctx, false)) }

// handle returns h, and no handle for nil.
func handle(h *locks.Held, err error) (lock.Held, error) {
	if h == nil {
		return nil, err
	}
	return h, err
}

// TryAcquire takes the lock if it is free and otherwise returns [ErrBusy], with the holder in
// the [Error] if it is known. It waits for no holder, but one round trip, or until ctx ends,
// for the acknowledgement of every node that it asks.
//
// In the lease mode it returns [ErrStore] at once while this node waits for the store.
//
// It may call a free lock busy: if two try at the same moment; if a withdrawn request of this
// node, such as that of an earlier TryAcquire, has not had its turn yet; if the network loses or
// reorders messages; while the nodes that are asked are not all [Node.Ready], as in the first
// moments of a group; and under an algorithm in which the answer takes more than one round trip,
// such as that of a token which is passed on.
func (m *Mutex) TryAcquire(ctx context.Context) (lock.Held, error) {
	return handle(m.acquire(ctx, true))
}

// made reports whether a node that was opened has made the lock.
func (m *Mutex) made() bool { return m != nil && m.node != nil && m.node.group != nil }

var errUnmade = dmutex.Misuse("the lock, election or transaction was not made by a Node: use the methods Mutex, Election and Txn of a Node that was opened")

var errUnopened = dmutex.Misuse("the node was not opened: use Open or OpenStrict")

// lawful refuses what is not the name of a lock.
func lawful(name string) error {
	if len(name) == 0 || len(name) > lock.MaxName {
		return dmutex.Misuse(fmt.Sprintf("the name of a lock has 1 to %d bytes, not %d", lock.MaxName, len(name)))
	}
	return nil
}

func (m *Mutex) acquire(ctx context.Context, trying bool) (*locks.Held, error) {
	switch err := lawful(m.name); {
	case !m.made():
		return nil, errUnmade
	case err != nil:
		return nil, err
	}
	if m.node.cfg.Observer == nil {
		return m.wait(ctx, trying)
	}
	called := m.node.mail.Now()
	h, err := m.wait(ctx, trying)
	m.observe(called, h, err)
	return h, err
}

// wait is acquire without an Observer.
func (m *Mutex) wait(ctx context.Context, trying bool) (*locks.Held, error) {
	if ctx == nil || ctx.Err() != nil {
		return nil, public(m.name, hold.ContextError(ctx))
	}
	for {
		if trying {
			if _, err := m.node.group.Waits(); errors.Is(err, ErrStore) {
				return nil, public(m.name, err)
			}
			if err := m.node.Ready(ctx); err != nil {
				return nil, err
			}
		}
		w, h, err := m.node.locks.Join(ctx, m.name, locks.Want{Try: trying, Shares: m.shared}, nil)
		if w != nil {
			if trying {
				m.awaitReceipts(ctx, w)
			} else {
				m.awaitGrant(ctx, w)
			}
			if h, err = w.Result(); m.txn == nil { // else it may be told yet that it is a victim
				w.Free()
			}
		}
		if err != locks.ErrViewChanged {
			return h, public(m.name, err)
		}
	}
}

// awaitReceipts waits until each node that was asked has acknowledged the request of w. If no
// answer has granted the lock then, it is busy, as it is if this node holds it, or waits for it
// already, and has asked nobody.
func (m *Mutex) awaitReceipts(ctx context.Context, w *locks.Waiter) {
	for _, receipt := range w.Receipts() {
		select {
		case <-w.Ready():
			return
		case <-ctx.Done():
			w.GiveUp(m.node.waitError(m.name, answer{}, answer{}, hold.ContextError(ctx)))
			return
		case <-receipt:
		}
	}
	st, busy := m.node.locks.Status(m.name), ErrBusy
	if by := m.node.heldBy(m.name, st, "this process", answer{}); by != "" {
		busy = fmt.Errorf("%w: %s", ErrBusy, by)
	}
	w.Quit(&Error{Lock: m.name, Holder: st.Holder, Err: busy})
}

// askBefore is how long before the deadline of an Acquire its node asks who holds the lock, for
// the error.
const askBefore = 500 * time.Millisecond

func (m *Mutex) awaitGrant(ctx context.Context, w *locks.Waiter) {
	n, lapsed := m.node, m.lapsed
	var look, ask <-chan time.Time
	if m.txn != nil && n.cfg.Deadlock > 0 {
		m.txn.wait(w)
		defer m.txn.wait(nil)
		look = time.Tick(n.mail.Clock().Span(n.cfg.Deadlock))
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		ask = time.After(left - min(left/2, askBefore))
	}
	var answers <-chan answer
	var holder, writer answer // that have answered; times are less that of the answer
	for {
		select {
		case <-w.Ready():
			return
		case <-ctx.Done():
			w.GiveUp(n.waitError(m.name, holder, writer, hold.ContextError(ctx)))
			return
		case <-lapsed:
			if _, err := m.txn.holds(""); err != nil {
				w.GiveUp(err)
				return
			}
			lapsed = nil // it has released what it held, and is granted nothing else meanwhile
		case <-look:
			m.txn.chase()
		case <-ask:
			if n.locks.Status(m.name).Holder != dmutex.None {
				break
			}
			q := n.question(m.name)
			defer n.asks.Delete(q.number)
			answers = q.answers
			n.sendAll(&q.message)
			n.mail.Flush()
		case a := <-answers:
			now := n.mail.Now().Age()
			if a.Fence != 0 {
				holder = a
				holder.Age -= now
			}
			if m.shared && a.waited > 0 {
				writer = a
				writer.waited -= now
			}
		}
	}
}

// Do runs f while it holds the lock, as [lock.Mutex] says. [Node.Close] waits for f, which must not call it.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, fence uint64) error) error {
	if f == nil {
		return public(m.name, hold.ErrNoFunction)
	}
	return m.do(ctx, func(ctx context.Context, _ dmutex.NodeID, fence uint64) error { return f(ctx, fence) })
}

// do is Do for a function that needs the number under which the lock is held.
func (m *Mutex) do(ctx context.Context, f func(ctx context.Context, self dmutex.NodeID, fence uint64) error) error {
	h, err := m.acquire(ctx, false)
	if err != nil {
		return err
	}
	self, working := h.Work()
	defer h.Rest()
	release := func() error { return public(m.name, h.Release()) }
	if !working {
		return release() // it is lost
	}
	return hold.Run(ctx, h, release, func(ctx context.Context, fence uint64) error { return f(ctx, self, fence) })
}
