package ring

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// parked is one lock at one node of a ring whose token parks.
type parked struct {
	seat
	ordered bool            // by Order
	wanters []dmutex.NodeID // ascending; empty without the token
}

// New is a [dmutex.Algorithm]. The members form the ring in ascending order, and the token
// begins at [dmutex.Start.Home].
func New(s dmutex.Start) (dmutex.Machine, error) { return newParked(s, nil) }

// Order returns the algorithm for a ring of the given order, such as one that follows the
// network's topology; all nodes of a group must have the same. The token of every lock
// begins at the first node. A Start with other members is refused with [dmutex.ErrMisuse].
func Order(nodes ...dmutex.NodeID) dmutex.Algorithm {
	nodes = append([]dmutex.NodeID{}, nodes...) // not nil
	return func(s dmutex.Start) (dmutex.Machine, error) { return newParked(s, nodes) }
}

func newParked(s dmutex.Start, order []dmutex.NodeID) (dmutex.Machine, error) {
	t, err := newSeat(s, order)
	if err != nil {
		return nil, err
	}
	return site.Complete(&parked{seat: t, ordered: order != nil}), nil
}

func (m *parked) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	if m.token {
		m.Enter()
	} else {
		m.sendWant(m.Self(), m.Stamp().Clock)
	}
	return m.Out(), nil
}

func (m *parked) Release() ([]dmutex.Message, error) {
	if _, err := m.Leave(); err != nil {
		return nil, err
	}
	m.passIfWanted()
	return m.Out(), nil
}

func (m *parked) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	if msg.Kind == dmutex.Request {
		m.want(msg)
	} else {
		m.takeToken(msg)
	}
	return m.Out(), nil
}

// want notes the name in a WANT if the token is here, and else sends it on. Our
// own comes home if we were served in the meantime.
func (m *parked) want(msg dmutex.Message) {
	m.Witness(0, msg.Fence)
	node := msg.Nodes[0]
	switch {
	case node == m.Self():
	case m.token:
		if i, noted := slices.BinarySearch(m.wanters, node); !noted {
			m.wanters = slices.Insert(m.wanters, i, node)
		}
		m.passIfWanted()
	default:
		m.sendWant(node, msg.Attempt)
	}
}

func (m *parked) sendWant(node dmutex.NodeID, attempt uint64) {
	i := slices.Index(m.order, node)
	m.Send(dmutex.Request, m.after, attempt).Nodes = m.order[i : i+1 : i+1]
}

// takeToken enters, rests the token here, or passes it on.
func (m *parked) takeToken(msg dmutex.Message) {
	m.wanters = append(m.wanters, msg.Nodes...)
	m.wanters = slices.DeleteFunc(m.wanters, func(node dmutex.NodeID) bool { return node == m.Self() })
	m.take(msg)
	m.passIfWanted()
}

// passIfWanted passes a token that is not in use here to its wanters.
func (m *parked) passIfWanted() {
	if m.rests() && len(m.wanters) > 0 {
		m.pass().Nodes = m.wanters
		m.wanters = m.wanters[:0]
	}
}
