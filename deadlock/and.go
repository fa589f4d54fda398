package deadlock

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// And is one node of the AND model: it waits until all whom it has asked have
// granted. It is not safe for concurrent use.
//
// # Theory of operation
//
// A blocked node i begins its n-th computation by sending PROBE(i,n) to
// everybody for whom it waits. A node that receives a PROBE takes it as
// meaningful only if it is blocked itself and has not granted the sender's
// request yet: then i waits, through the sender, for everybody for whom this
// node waits, and the first PROBE of the computation is sent on to all of them.
// If a PROBE of i comes to i itself, i is on a circle: it is deadlocked.
//
// What is declared is so, where waits are not withdrawn. Say the PROBE came by
// way of k1, k2, ... km. The request of km to i is not granted and i is
// blocked. So km has been blocked since it sent the PROBE on, and has granted
// nothing since; nor has then the node before it; and so on back to k1, which
// has not granted i.
//
// What is so is declared. When the last node of a circle begins a computation,
// all waits of the circle are there for good. PROBE follows the requests on
// their channels, so it finds them pending; and as the computation is new,
// every node of the circle still has to pass it on.
//
// Numbers tell computations apart: a node that has passed on an earlier one,
// when it waited for others, has to pass the new one on again.
//
// Count. A computation sends at most one PROBE over each wait, so at most
// N(N-1); around a lone circle of n nodes exactly n, and it takes n hops. (The
// paper puts several processes on a site, and counts those between sites.)
//
// Departures from the paper: computations are numbered; what is passed on once
// is each computation, where the paper has a flag for each initiator that
// somebody must reset.
type And struct {
	site
	since uint64   // seq when the present wait began
	asked []bool   // by rank: its request to us is pending
	seen  []uint64 // by initiator: the last computation that we have passed on
}

// NewAnd returns the machine of a node that is active, and that nobody has
// asked. It refuses with [dmutex.ErrMisuse] members that contain 0, or a node
// twice, or not the node itself.
func NewAnd(self dmutex.NodeID, members []dmutex.NodeID) (*And, error) {
	s, err := newSite(self, members)
	if err != nil {
		return nil, err
	}
	return &And{site: s, asked: make([]bool, len(members)), seen: make([]uint64, len(members))}, nil
}

// Wait tells that this node has sent requests to others and is blocked until
// all have granted. It refuses with [dmutex.ErrMisuse] a wait for nobody, for
// itself, for a stranger or for a node twice, and one while blocked.
func (m *And) Wait(on []dmutex.NodeID) error {
	if err := m.wait(on); err != nil {
		return err
	}
	m.since = m.seq
	return nil
}

// Granted tells that a grant has come in. The last one makes this node active.
// It refuses with [dmutex.ErrMisuse] one that is not awaited.
func (m *And) Granted(by dmutex.NodeID) error {
	j, err := m.awaited(by)
	if err != nil {
		return err
	}
	m.waits[j] = false
	if m.blocked--; m.blocked == 0 {
		m.unblock()
	}
	return nil
}

// Withdraw tells that this node waits no longer, although not all have granted.
// It refuses with [dmutex.ErrMisuse] if it is active.
func (m *And) Withdraw() error { return m.withdraw() }

// Asked tells that a request has come in, which now is pending. It refuses with
// [dmutex.ErrMisuse] a second one of the same node.
func (m *And) Asked(by dmutex.NodeID) error {
	j, err := m.other(by)
	switch {
	case err != nil:
		return err
	case m.asked[j]:
		return dmutex.Misuse("a request of node " + by.String() + " is pending")
	}
	m.asked[j] = true
	return nil
}

// Settled tells that a request is pending no longer: this node has sent the
// grant, or the other has withdrawn. It refuses with [dmutex.ErrMisuse] if none
// is.
func (m *And) Settled(with dmutex.NodeID) error {
	j, err := m.other(with)
	switch {
	case err != nil:
		return err
	case !m.asked[j]:
		return dmutex.Misuse("no request of node " + with.String() + " is pending")
	}
	m.asked[j] = false
	return nil
}

// Detect begins a computation, and returns what to send. It refuses with
// [dmutex.ErrMisuse] if this node is active. To repeat it in the same wait does
// no harm. The slice belongs to the machine and is overwritten by the next
// Detect or Handle.
func (m *And) Detect() ([]Message, error) {
	if err := m.detect(); err != nil {
		return nil, err
	}
	m.ask(Probe, m.me, m.seq)
	return m.out, nil
}

// Handle takes a message from a peer, and returns what to send. One that no
// correct peer sends is refused with [dmutex.ErrPeer]. After it, look at
// Deadlocked.
func (m *And) Handle(msg Message) ([]Message, error) {
	from, i, err := m.check(msg)
	switch {
	case err != nil:
		return nil, err
	case msg.Kind != Probe:
		return nil, refuse(msg, "the AND model has no such message")
	case m.blocked == 0 || !m.asked[from]: // not meaningful
	case i == m.me:
		if msg.Number > m.since {
			m.deadlocked = true
		}
	case msg.Number > m.seen[i]:
		m.seen[i] = msg.Number
		m.ask(Probe, i, msg.Number)
	}
	return m.out, nil
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *And) AppendText(b []byte) ([]byte, error) {
	b = m.appendText(append(b, "and "...))
	if m.blocked > 0 {
		b = m.appendNumber(b, " since ", m.me, m.since)
	}
	b = m.appendSet(b, " asked by ", m.asked)
	for i, number := range m.seen {
		if number > 0 {
			b = m.appendNumber(b, " seen ", i, number)
		}
	}
	return b, nil
}

// Clone returns an independent copy.
func (m *And) Clone() *And {
	c := *m
	c.site = m.clone()
	c.asked, c.seen = slices.Clone(m.asked), slices.Clone(m.seen)
	return &c
}
