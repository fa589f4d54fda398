package ring

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// circulating is one lock at one node of a ring whose token goes around forever.
type circulating struct {
	seat
	pace   int
	rested int // ticks since the token came here
}

// Circulate returns Le Lann's algorithm: no node asks for the token; it comes by
// itself. An idle node passes it on after pace ticks, at least 1, because
// otherwise it would go around as fast as the network allows. If no order is
// given, the order is ascending and the token begins at [dmutex.Start.Home], else at the
// first node. All nodes of a group must have the same order; a pace below 1, or a Start of other members,
// is refused with [dmutex.ErrMisuse]. The machines are of type [dmutex.Ticker].
//
// An idle ring of N nodes sends one message every pace ticks and one hop, forever. When all
// nodes always want the lock an entry costs 1 message. A request waits for up to N hops and
// N-1 times the pace, and for the nodes on the way that enter: from a release to the next
// entry up to N-1 hops, and the pace at each of up to N-2 idle nodes between. The channels
// may reorder messages, but not repeat them.
func Circulate(pace int, order ...dmutex.NodeID) dmutex.Algorithm {
	order = append([]dmutex.NodeID(nil), order...) // nil if there is none
	return func(s dmutex.Start) (dmutex.Machine, error) {
		if pace < 1 {
			return nil, dmutex.Misuse("the pace of the ring must be at least 1 tick")
		}
		t, err := newSeat(s, order)
		if err != nil {
			return nil, err
		}
		return site.Complete(&circulating{seat: t, pace: pace}), nil
	}
}

func (m *circulating) Request() ([]dmutex.Message, error) {
	_, err := m.Ask(dmutex.Request)
	if err == nil && m.token {
		m.Enter()
	}
	return nil, err
}

func (m *circulating) Release() ([]dmutex.Message, error) {
	if _, err := m.Leave(); err != nil {
		return nil, err
	}
	m.passOn()
	return m.Out(), nil
}

func (m *circulating) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	m.take(msg)
	return nil, nil
}

// Tick implements [dmutex.Ticker]: an idle node with the token counts it, and
// passes the token on when it is time. At the other nodes it does nothing.
func (m *circulating) Tick() ([]dmutex.Message, error) {
	m.Begin()
	if m.rests() {
		if m.rested++; m.rested == m.pace {
			m.passOn()
		}
	}
	return m.Out(), nil
}

func (m *circulating) passOn() {
	m.rested = 0
	if m.after != m.Self() {
		m.pass()
	}
}
