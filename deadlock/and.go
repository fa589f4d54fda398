package deadlock

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// And is one node of the AND model: it waits until all nodes that it has asked have
// granted. It is not safe for concurrent use.
//
// # Theory of operation
//
// A blocked node i begins its n-th computation by sending PROBE(i,n) to all nodes that it
// waits for. A PROBE is meaningful only to a receiver that is blocked itself and has not
// granted the sender's request yet: then i waits, through the sender, for all nodes that
// the receiver waits for, and the receiver sends the first PROBE of the computation on to
// all of them. If a PROBE of i reaches i itself, i is on a cycle: it is deadlocked.
//
// Every declaration is true, where waits are not withdrawn. Say the PROBE came by
// way of k1, k2, ... km. The request of km to i is not granted and i is
// blocked. So km has been blocked since it sent the PROBE on, and has granted
// nothing since. So neither has the node before it, and so on back to k1, which
// has not granted i.
//
// Every deadlock is declared. When the last node of a cycle begins a computation,
// all waits of the cycle are permanent. PROBE follows the requests on their
// channels, so it finds them pending; and because the computation has a new number, every
// node of the cycle still has to pass it on. (The paper has a flag for each initiator
// instead of numbers, which must be reset.)
//
// Count. A computation sends at most one PROBE over each wait, so at most
// N(N-1); around a lone cycle of n nodes exactly n, and it takes n hops. (The
// paper puts several processes on a site, and counts those between sites.)
type And struct {
	site
	asked []bool   // by rank: its request to us is pending
	seen  []uint64 // by initiator: the last computation that we have passed on
}

// NewAnd returns the machine of a node that is active, and that no other node has asked.
// The error is [dmutex.ErrMisuse] if the members contain 0 or a node twice, or lack self.
func NewAnd(self dmutex.NodeID, members []dmutex.NodeID) (*And, error) {
	s, err := newSite(self, members)
	if err != nil {
		return nil, err
	}
	m := &And{site: s, asked: make([]bool, len(members)), seen: make([]uint64, len(members))}
	m.model = m
	return m, nil
}

// Granted reports that a grant has arrived. The last one makes this node active.
func (m *And) Granted(by dmutex.NodeID) error {
	j, err := m.awaited(by)
	if err != nil {
		return err
	}
	m.waits = slices.Clone(m.waits)
	m.waits[j] = false
	if m.blocked--; m.blocked == 0 {
		m.unblock()
	}
	return nil
}

// Asked reports that a request has arrived, which is now pending: one of a node at a time.
func (m *And) Asked(by dmutex.NodeID) error { return m.pend(by, true, "a") }

// Settled reports that a request is no longer pending: this node has sent the grant, or
// the other node has withdrawn.
func (m *And) Settled(with dmutex.NodeID) error { return m.pend(with, false, "no") }

func (m *And) pend(node dmutex.NodeID, pending bool, already string) error {
	j, err := m.other(node)
	switch {
	case err != nil:
		return err
	case m.asked[j] == pending:
		return dmutex.Misuse("deadlock: " + already + " request of node " + node.String() + " is pending")
	}
	m.asked[j] = pending
	return nil
}

func (m *And) compute() { m.ask(Probe, m.me, m.seq) }

func (m *And) handle(from, i int, msg Message) (mistake string) {
	switch {
	case msg.Kind != Probe:
		return "the AND model has no such message"
	case m.blocked == 0 || !m.asked[from]: // not meaningful
	case i == m.me:
		if msg.Number > m.since {
			m.deadlocked = true
		}
	case msg.Number > m.seen[i]:
		m.seen[i] = msg.Number
		m.ask(Probe, i, msg.Number)
	}
	return ""
}

// AppendText appends the canonical state: machines with equal text behave alike
// forever. The error is always nil.
func (m *And) AppendText(b []byte) ([]byte, error) {
	b = m.appendText(append(b, "and "...))
	if m.blocked > 0 {
		b = m.appendNumber(b, " since ", m.me, m.since)
	}
	b = canon.Set(b, " asked by ", m.members, m.asked)
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
	c.model = &c
	c.asked, c.seen = slices.Clone(m.asked), slices.Clone(m.seen)
	return &c
}
