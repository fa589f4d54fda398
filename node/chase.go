package node

import (
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/node/internal/locks"
)

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
		t.began = uint64(max(time.Now().UnixNano(), 1))
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
	b := (&message{says: saysProbe, probe: *c}).append(nil)
	if len(b) > n.mail.MaxMessage() || n.mail.Backlog(to)+len(b) > probeBacklog || n.send(to, b) != nil {
		return false
	}
	n.probes.Add(1)
	return true
}
