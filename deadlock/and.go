package deadlock

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// NewAnd returns the machine of a node in the AND model: it waits until all nodes that it has
// asked have granted. It is active, and no other node has asked it. The error is
// [dmutex.ErrMisuse] if the members contain 0 or a node twice, or lack self.
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
func NewAnd(self dmutex.NodeID, members []dmutex.NodeID) (*Machine, error) {
	m, err := newMachine("and", self, members, func(m *Machine) rules { return and{m} })
	if err == nil {
		m.seen = make([]uint64, len(members))
	}
	return m, err
}

type and struct{ *Machine }

func (m and) granted(j int) {
	m.waits = slices.Clone(m.waits)
	m.waits[j] = false
	if m.blocked--; m.blocked == 0 {
		m.unblock()
	}
}

func (m and) compute() { m.ask(Probe, m.me, m.seq) }

func (m and) handle(from, i int, msg Message) (mistake string) {
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
