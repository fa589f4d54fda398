package node

import (
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/transport"
)

// probeBacklog bounds what may wait for a peer's acknowledgement, in bytes, when
// a probe is sent to it. A probe that is not sent costs time only, and many that
// pile up while a peer cannot be reached would leave no room for requests.
const probeBacklog = 64 << 10

// view is what a node knows of its own locks, one shard or one transaction at a
// time.
type view struct{ *Node }

var _ deadlock.Locks = view{}

// at looks at a lock, if this node knows it, under the shard's mutex.
func (v view) at(name string, look func(s *shard, l *lock)) {
	hash := maphash.String(v.seed, name)
	s := v.shardOf(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.locks.find(hash, name); l != nil {
		look(s, l)
	}
}

// Holder implements [deadlock.Locks].
func (v view) Holder(name string) (w deadlock.Wait, began uint64, held bool) {
	t, held := v.holder(name)
	if t != nil {
		w, began = t.waits()
	}
	return w, began, held
}

// holder returns the transaction of this node that holds a lock, nil if it is
// held by itself.
func (v view) holder(name string) (t *Txn, held bool) {
	v.at(name, func(s *shard, l *lock) {
		if l.held != nil {
			t, held = s.owners[l.held], true
		}
	})
	return t, held
}

// WaitsFor implements [deadlock.Locks].
func (v view) WaitsFor(b []dmutex.NodeID, name string) []dmutex.NodeID {
	v.at(name, func(_ *shard, l *lock) {
		b = l.machine.WaitsFor(b)
	})
	return b
}

// Lends implements [deadlock.Locks].
func (v view) Lends(name string) (to dmutex.NodeID) {
	v.at(name, func(_ *shard, l *lock) {
		if m, ok := l.machine.(dmutex.Lender); ok {
			to = m.Lends()
		}
	})
	return to
}

// own notes whose a hold is. It is forgotten with the hold.
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

// wait notes that the transaction waits, until the returned ticker is stopped
// and waited is called. The ticker says when to look for a circle.
func (t *Txn) wait(h *Held) *time.Ticker {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.began == 0 {
		t.began = uint64(max(t.node.now()-t.node.readied, 1))
	}
	t.waiting = h
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
	w = deadlock.Wait{Node: t.node.cfg.Self, Txn: t.id}
	if t.waiting != nil && t.waiting.waits() { // its goroutine may not know yet that it is over
		w.Number, w.Lock = t.number, t.waiting.lock.name
	}
	return w, t.began
}

// chase looks for a circle that the present wait closes.
func (t *Txn) chase() {
	if w, began := t.waits(); w.Number > 0 {
		t.node.follow(deadlock.NewChase(began, w, view{t.node}))
		t.node.flush()
	}
}

func (t *Txn) holds() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.held, func(h *Held) bool { return h.Err() == nil })
}

// follow takes a chase as far as this node can, and sends it on or breaks the
// circle.
func (n *Node) follow(c *deadlock.Chase) {
	for {
		next, found := c.Follow(view{n})
		switch {
		case found:
			n.breakCircle(c.Path)
			return
		case next == dmutex.None, n.sendProbe(next, c), c.Checked > 0:
			return
		}
	}
}

// breakCircle ends the first wait of a circle, if it is not over already.
func (n *Node) breakCircle(path []deadlock.Wait) {
	t, _ := view{n}.holder(path[len(path)-1].Lock)
	if t == nil {
		return
	}
	t.mu.Lock()
	h := t.waiting
	if t.id != path[0].Txn || t.number != path[0].Number {
		h = nil // the lock has been given back meanwhile, or the wait has ended
	}
	t.mu.Unlock()
	if h == nil {
		return
	}
	s := h.lock.shard
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.waits() {
		n.deadlocks.Add(1)
		h.lock.quit(h, newDeadlockError(path))
	}
}

// sendProbe sends a chase on. It does not go to one that has left, or takes too
// little of what is sent to it, and not if it is too long for the link.
func (n *Node) sendProbe(to dmutex.NodeID, c *deadlock.Chase) (sent bool) {
	p := n.peer(to)
	if p == nil {
		return false
	}
	b := appendProbe(nil, c)
	p.mu.Lock()
	fits := len(b) <= p.session.MaxMessage() && p.session.Backlog()+len(b) <= probeBacklog
	p.mu.Unlock()
	if !fits || p.post(func(out []byte) []byte { return append(out, b...) }, nil) != nil {
		return false
	}
	n.probes.Add(1)
	return true
}

// probed takes a chase that has come from a peer.
func (n *Node) probed(from dmutex.NodeID, message []byte) {
	c, ok := readProbe(message, len(n.cfg.Members))
	switch {
	case n.cfg.Deadlock == 0:
		n.refuse(from, dmutex.PeerMistake("it looks for deadlocks, and the group does not"))
	case !ok:
		n.refuse(from, dmutex.PeerMistake("what looks for a deadlock is not what it should be"))
	default:
		n.follow(c)
	}
}

// appendProbe appends a chase as it is on the wire: saysProbe, and then numbers
// as [binary.AppendUvarint] has them, and names with their length before them.
func appendProbe(b []byte, c *deadlock.Chase) []byte {
	lent := uint64(0)
	if c.Lent {
		lent = 1
	}
	b = append(b, saysProbe)
	for _, v := range []uint64{c.Began, uint64(c.Checked), lent, uint64(len(c.Path))} {
		b = binary.AppendUvarint(b, v)
	}
	for _, w := range c.Path {
		for _, v := range []uint64{uint64(w.Node), w.Txn, w.Number, uint64(len(w.Lock))} {
			b = binary.AppendUvarint(b, v)
		}
		b = append(b, w.Lock...)
	}
	b = binary.AppendUvarint(b, uint64(len(c.Ask)))
	for _, id := range c.Ask {
		b = binary.AppendUvarint(b, uint64(id))
	}
	return b
}

// readProbe reads a chase in a group of so many members. No length in it is
// believed before it is checked.
func readProbe(message []byte, members int) (*deadlock.Chase, bool) {
	r := reader{rest: message[1:], ok: true}
	c := &deadlock.Chase{Began: r.number(math.MaxUint64)}
	c.Checked = int(r.number(deadlock.MaxPath))
	c.Lent = r.number(1) == 1
	for range r.number(deadlock.MaxPath) {
		w := deadlock.Wait{Node: dmutex.NodeID(r.number(math.MaxUint64)), Txn: r.number(math.MaxUint64), Number: r.number(math.MaxUint64)}
		w.Lock = r.name()
		if !r.ok {
			return nil, false
		}
		c.Path = append(c.Path, w)
	}
	for range r.number(uint64(members)) {
		c.Ask = append(c.Ask, dmutex.NodeID(r.number(math.MaxUint64)))
	}
	return c, r.ok && len(r.rest) == 0 && len(c.Path) > 0
}

// A reader takes a message apart. After what is not as it should be it is not
// ok, and everything is 0.
type reader struct {
	rest []byte
	ok   bool
}

func (r *reader) number(most uint64) uint64 {
	v, size := binary.Uvarint(r.rest)
	if !r.ok || size <= 0 || v > most {
		r.ok = false
		return 0
	}
	r.rest = r.rest[size:]
	return v
}

func (r *reader) name() string {
	size := int(r.number(transport.MaxName))
	if size == 0 || size > len(r.rest) {
		r.ok = false
		return ""
	}
	name := string(r.rest[:size])
	r.rest = r.rest[size:]
	return name
}
