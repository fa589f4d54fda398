package node

import (
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
)

// probeBacklog bounds what may wait for a peer's acknowledgement, in bytes, when
// a probe is sent to it. A probe that is not sent costs time only, and many that
// pile up while a peer cannot be reached would leave no room for requests.
const probeBacklog = 64 << 10

// ownLocks is what a node knows of its own locks, one shard or one transaction at a
// time.
type ownLocks struct{ *Node }

var _ deadlock.Locks = ownLocks{}

// at looks at a lock, if this node knows it, under the shard's mutex.
func (v ownLocks) at(name string, look func(s *shard, l *lock)) {
	s := v.locks.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.table[name]; l != nil && l.machine != nil {
		look(s, l)
	}
}

// Holder implements [deadlock.Locks].
func (v ownLocks) Holder(name string) (w deadlock.Wait, began uint64, held bool) {
	t, held := v.holder(name)
	if t != nil {
		w, began = t.waits()
	}
	return w, began, held
}

// holder returns the transaction of this node that holds a lock, nil if the lock was
// taken without one.
func (v ownLocks) holder(name string) (t *Txn, held bool) {
	v.at(name, func(s *shard, l *lock) {
		if l.held != nil {
			t, held = s.owners[l.held], true
		}
	})
	return t, held
}

// WaitsFor implements [deadlock.Locks].
func (v ownLocks) WaitsFor(b []dmutex.NodeID, name string) []dmutex.NodeID {
	v.at(name, func(_ *shard, l *lock) {
		b = l.machine.WaitsFor(b)
	})
	return b
}

// Lends implements [deadlock.Locks].
func (v ownLocks) Lends(name string) (to dmutex.NodeID) {
	v.at(name, func(_ *shard, l *lock) {
		if m, ok := l.machine.(dmutex.Lender); ok {
			to = m.Lends()
		}
	})
	return to
}

// own records which Txn owns a hold, until the hold ends.
func (t *Txn) own(h *Held) {
	s := h.lock.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lock.held == h {
		if s.owners == nil {
			s.owners = make(map[*Held]*Txn)
		}
		s.owners[h] = t
	}
}

// wait records that the transaction waits, until waited is called. The caller stops
// the returned ticker. The ticker says when to look for a cycle.
func (t *Txn) wait(w *waiter) *time.Ticker {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began == 0 {
		t.began = uint64(max(time.Now().UnixNano(), 1))
	}
	t.waiting = w
	t.number++
	return time.NewTicker(t.node.cfg.Deadlock)
}

func (t *Txn) waited() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.waiting = nil
}

// waits returns the present wait, with Number 0 if there is none, and when the
// transaction began.
func (t *Txn) waits() (w deadlock.Wait, began uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w = deadlock.Wait{Node: t.node.Self(), Txn: t.id}
	if t.waiting != nil && !t.waiting.over.Load() { // its goroutine may not know yet that it is over
		w.Number, w.Lock = t.number, t.waiting.lock.name
	}
	return w, t.began
}

// chase looks for a cycle that the present wait closes.
func (t *Txn) chase() {
	if w, began := t.waits(); w.Number > 0 {
		t.node.follow(deadlock.NewChase(began, w, ownLocks{t.node}))
		t.node.mail.Flush()
	}
}

// follow takes a chase as far as this node can, and sends it on or breaks the
// cycle.
func (n *Node) follow(c *deadlock.Chase) {
	for {
		next, found := c.Follow(ownLocks{n})
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
func (n *Node) breakCycle(path []deadlock.Wait) {
	t, _ := ownLocks{n}.holder(path[len(path)-1].Lock)
	if t == nil {
		return
	}
	t.mu.Lock()
	w := t.waiting
	if t.id != path[0].Txn || t.number != path[0].Number {
		w = nil // the lock has been given back meanwhile, or the wait has ended
	}
	t.mu.Unlock()
	if w == nil {
		return
	}
	s := w.lock.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if !w.over.Load() {
		n.deadlocks.Add(1)
		w.lock.quit(w, newDeadlockError(path))
	}
}

// sendProbe sends a chase on. It does not if the peer has left or its backlog is too
// large, or if the probe is too long for the link.
func (n *Node) sendProbe(to dmutex.NodeID, c *deadlock.Chase) (sent bool) {
	b := appendProbe(nil, c)
	if len(b) > n.mail.MaxMessage() || n.mail.Backlog(to)+len(b) > probeBacklog {
		return false
	}
	if _, err := n.mail.Send(to, func(out []byte) []byte { return append(out, b...) }); err != nil {
		return false
	}
	n.probes.Add(1)
	return true
}

// probed takes a chase that has come from a peer.
func (n *Node) probed(from dmutex.NodeID, message []byte) {
	c, err := readProbe(message, n.cfg.maxMembers())
	switch {
	case n.cfg.Deadlock == 0:
		n.locks.refuse(from, dmutex.PeerMistake("node: a deadlock probe, although Config.Deadlock is 0"))
	case err != nil:
		n.locks.refuse(from, fmt.Errorf("node: deadlock probe: %w", err))
	default:
		n.follow(c)
	}
}
