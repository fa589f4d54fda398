// Package ricart is the algorithm of Ricart and Agrawala: ask everybody, enter
// when everybody has replied.
//
// Ricart and Agrawala, "An Optimal Algorithm for Mutual Exclusion in Computer
// Networks", CACM 24(1), 1981.
//
// # Theory of operation
//
// A node that wants the critical section sends REQUEST, stamped with its
// logical clock and its number, to all others, and enters when all have sent
// REPLY. A node that receives a REQUEST replies at once, unless it is in the
// critical section itself or has a pending request with the lower stamp; then
// it defers the REPLY until it leaves. There is no other message: the REPLY is
// at once "I do not mind" and "I have left".
//
// Mutual exclusion. While a request of j is pending or in the critical section
// and i has answered it, any request that i has is larger. For i answers only
// when its own request is larger or when it has none; in the latter case its
// clock is now at least that of j's request (rule K2), and its next request
// gets a higher one (rule K1). Two nodes in the critical section would each
// have the larger stamp.
//
// Progress. The request with the smallest stamp is deferred only by a node in
// the critical section, which leaves.
//
// Order and count. The channels may reorder messages: what a node answers
// depends on stamps, not on arrival. Every entry costs exactly 2(N-1)
// messages. The delay is two message hops when nobody else is interested, one
// hop from a release to the next entry. One node that stops answering stops
// everybody.
//
// Departures from the paper: a REPLY names the request that it answers, and
// replies are a set of nodes, not a count, so that an old or repeated one is
// worth nothing; messages carry the highest fence known; a cancelled request
// runs its course as [dmutex.Site] tells.
package ricart

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Machine].
type Machine struct {
	site   dmutex.Site
	*round      // nil at rest: we await no REPLY and owe none, see rest.go
	all    bool // at rest, every peer's permission is ours; see [Carvalho]
}

// A round goes from our REQUEST to the last REPLY that we owe.
type round struct {
	awaiting []bool   // by peer: its REPLY is still missing
	missing  int      // how many are
	deferred []uint64 // by peer: the time of its REQUEST that we shall answer when we leave; 0 if none
	kept     []bool   // by peer: its permission is ours, and we do not owe it a REPLY; see [Carvalho]
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. It has the shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	return &Machine{site: site}, nil
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wake()
	defer m.rest()
	for j, peer := range m.site.Peers() {
		m.awaiting[j] = true
		m.site.Send(dmutex.Request, peer, m.site.Stamp().Clock)
	}
	m.missing = len(m.awaiting)
	m.tryEnter()
	return m.site.Out(), nil
}

// Cancel implements [dmutex.Machine].
func (m *Machine) Cancel() ([]dmutex.Message, error) {
	return nil, m.site.Cancel()
}

// Release implements [dmutex.Machine].
func (m *Machine) Release() ([]dmutex.Message, error) {
	if err := m.site.Release(); err != nil {
		return nil, err
	}
	m.wake()
	defer m.rest()
	m.leave()
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.site.Check(msg)
	if err != nil {
		return nil, err
	}
	m.wake()
	defer m.rest()
	if err := m.hear(j, msg); err != nil {
		return nil, err
	}
	return m.site.Out(), nil
}

func (m *Machine) hear(j int, msg dmutex.Message) error {
	switch msg.Kind {
	case dmutex.Request:
		m.request(j, msg)
	case dmutex.Reply:
		if msg.Attempt > m.site.Clock() {
			return m.site.Refuse(msg, "it answers a request that was never made")
		}
		m.reply(j, msg)
	default:
		return m.site.Refuse(msg, "Ricart-Agrawala has no such message")
	}
	return nil
}

// request answers a peer's REQUEST now or when we leave.
func (m *Machine) request(j int, msg dmutex.Message) {
	m.site.Witness(msg.Attempt, msg.Fence)
	if m.goesFirst(dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
		m.deferred[j] = max(m.deferred[j], msg.Attempt)
		return
	}
	m.site.Send(dmutex.Reply, msg.From, msg.Attempt)
}

// goesFirst reports whether our own request, if any, goes before theirs.
func (m *Machine) goesFirst(theirs dmutex.Stamp) bool {
	return m.site.Phase() == dmutex.Held || m.site.Pending() && m.site.Stamp().Less(theirs)
}

// reply counts a peer's REPLY if it answers our present request.
func (m *Machine) reply(j int, msg dmutex.Message) {
	m.site.Witness(0, msg.Fence)
	if m.awaiting[j] && msg.Attempt == m.site.Stamp().Clock {
		m.awaiting[j] = false
		m.missing--
		m.tryEnter()
	}
}

// tryEnter enters when nobody's REPLY is missing. For a withdrawn request the
// critical section is empty.
func (m *Machine) tryEnter() {
	if m.missing == 0 && !m.site.Enter() {
		m.leave()
	}
}

// leave sends the deferred replies.
func (m *Machine) leave() {
	for j, peer := range m.site.Peers() {
		if m.deferred[j] != 0 {
			m.site.Send(dmutex.Reply, peer, m.deferred[j])
			m.deferred[j] = 0
		}
	}
}

// WaitsFor implements [dmutex.Machine]: those whose REPLY is missing. One that
// is in the critical section has not sent it.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.site.Pending() {
		return b
	}
	for j, peer := range m.site.Peers() {
		if m.awaiting[j] {
			b = append(b, peer)
		}
	}
	return b
}

// Phase implements [dmutex.Machine].
func (m *Machine) Phase() dmutex.Phase { return m.site.Phase() }

// Pending implements [dmutex.Machine].
func (m *Machine) Pending() bool { return m.site.Pending() }

// Fence implements [dmutex.Machine].
func (m *Machine) Fence() uint64 { return m.site.Fence() }

// Forget implements [dmutex.Machine]. An idle node owes nobody a reply.
func (m *Machine) Forget() (clock, fence uint64, ok bool) { return m.site.Forget() }

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b, err := m.site.AppendText(append(b, "ricart "...))
	if m.round == nil {
		return b, err
	}
	for j, peer := range m.site.Peers() {
		if m.awaiting[j] {
			b = append(b, " awaiting "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
		}
	}
	for j, peer := range m.site.Peers() {
		if t := m.deferred[j]; t != 0 {
			b = dmutex.Stamp{Clock: t, Node: peer}.AppendTo(append(b, " deferred "...))
		}
	}
	return b, err
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := *m
	c.site = m.site.Clone()
	if r := m.round; r != nil {
		c.round = &round{slices.Clone(r.awaiting), r.missing, slices.Clone(r.deferred), slices.Clone(r.kept)}
	}
	return &c
}
