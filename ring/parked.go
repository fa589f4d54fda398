package ring

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node of a ring whose token parks. It implements
// [dmutex.Keeper].
type Machine struct {
	seat
	wanters []dmutex.NodeID // ascending; empty without the token
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. The ring goes up through the members and from the highest to the
// lowest, with which the token begins. New has the shape of
// [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, ascending(s.Members)) }

// Order returns the algorithm for a ring of the given order, such as the one
// with the shortest wires. The token begins with the first node. All nodes of
// a group must have the same order; a Start of other members is refused with
// [dmutex.ErrMisuse].
func Order(nodes ...dmutex.NodeID) dmutex.Algorithm {
	nodes = slices.Clone(nodes)
	return func(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, nodes) }
}

func newMachine(s dmutex.Start, order []dmutex.NodeID) (dmutex.Machine, error) {
	t, err := newSeat(s, order)
	if err != nil {
		return nil, err
	}
	return &Machine{seat: t}, nil
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	if m.token {
		m.site.Enter()
	} else {
		m.sendWant(m.site.Self(), m.site.Stamp().Clock)
	}
	return m.site.Out(), nil
}

// Release implements [dmutex.Machine].
func (m *Machine) Release() ([]dmutex.Message, error) {
	if err := m.site.Release(); err != nil {
		return nil, err
	}
	m.passIfWanted()
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if err := m.check(msg); err != nil {
		return nil, err
	}
	if why := m.impossible(msg); why != "" {
		return nil, m.site.Refuse(msg, why)
	}
	if msg.Kind == dmutex.Request {
		m.want(msg)
	} else {
		m.takeToken(msg)
	}
	return m.site.Out(), nil
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *Machine) impossible(msg dmutex.Message) string {
	switch {
	case msg.Kind != dmutex.Request && msg.Kind != dmutex.Token:
		return "the ring has no such message"
	case len(msg.Numbers) > 0:
		return "there are no numbers in the ring"
	case len(msg.Nodes) == 0:
		return "it names nobody who wants the token"
	case msg.Kind == dmutex.Request && len(msg.Nodes) > 1:
		return "a WANT names one node"
	case msg.Kind == dmutex.Request && msg.Nodes[0] == m.site.Self() && msg.Attempt > m.site.Clock():
		return "it is about a request that was never made"
	}
	last := dmutex.None
	for _, node := range msg.Nodes {
		_, peer := slices.BinarySearch(m.site.Peers(), node)
		switch {
		case !peer && node != m.site.Self():
			return "it names a stranger"
		case node <= last:
			return "the names are not ascending"
		case msg.Kind == dmutex.Token && node == msg.From:
			return "the sender had the token and still wants it"
		}
		last = node
	}
	return ""
}

// want notes the name in a WANT if the token is here, and else sends it on. Our
// own comes home if we were served meanwhile.
func (m *Machine) want(msg dmutex.Message) {
	m.site.Witness(0, msg.Fence)
	node := msg.Nodes[0]
	switch {
	case node == m.site.Self():
	case m.token:
		if i, noted := slices.BinarySearch(m.wanters, node); !noted {
			m.wanters = slices.Insert(m.wanters, i, node)
		}
		m.passIfWanted()
	default:
		m.sendWant(node, msg.Attempt)
	}
}

func (m *Machine) sendWant(node dmutex.NodeID, attempt uint64) {
	p := m.place()
	i := slices.Index(p.order, node)
	m.site.Send(dmutex.Request, p.after, attempt).Nodes = p.order[i : i+1 : i+1]
}

// takeToken enters, rests the token here, or passes it on.
func (m *Machine) takeToken(msg dmutex.Message) {
	for _, node := range msg.Nodes {
		if node != m.site.Self() {
			m.wanters = append(m.wanters, node)
		}
	}
	m.take(msg)
	m.passIfWanted()
}

// passIfWanted passes a token that is not in use here to those who want it.
func (m *Machine) passIfWanted() {
	if m.rests() && len(m.wanters) > 0 {
		m.pass().Nodes = m.wanters
		m.wanters = m.wanters[:0]
	}
}

// Forget implements [dmutex.Machine]. The node where the token rests must
// remember it; and the one where the token of a fresh group would begin must
// remember that it is elsewhere. The others may always forget an idle lock.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, idle := m.site.Forget()
	return clock, fence, idle && len(m.wanters) == 0 && m.token == m.place().first
}

// Keeps implements [dmutex.Keeper]: an idle node must not forget where the token
// is.
func (m *Machine) Keeps() bool {
	_, _, idle := m.site.Forget()
	return idle && len(m.wanters) == 0 && m.token != m.place().first
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b = m.appendText(b)
	for _, node := range m.wanters {
		b = append(b, " wanted by "...)
		b = strconv.AppendUint(b, uint64(node), 10)
	}
	return b, nil
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	return &Machine{m.clone(), slices.Clone(m.wanters)}
}
