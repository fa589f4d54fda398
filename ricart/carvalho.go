package ricart

import (
	"strconv"

	"github.com/dmutex/dmutex"
)

// Carvalho is the algorithm with the improvement of Carvalho and Roucairol, "On
// Mutual Exclusion in Computer Networks", CACM 26(2), 1983. It has the shape
// of [dmutex.Algorithm].
//
// A REPLY is a permission, and it stands until the node that gave it asks for
// the lock itself. So a node need ask only those to whom it replied since, or
// whom it has never asked. If a REQUEST comes that goes before its own, from a
// node whose permission it relied on, it replies and asks for the permission
// back: the REPLY has given it away.
//
// Mutual exclusion. Of two nodes at most one has the other's permission, and
// none while a REPLY is under way between them; in the critical section a node
// has everybody's, and gives none away.
//
// Progress. As for [New], for a REQUEST is answered by the same rule; but
// grants are in the order of stamps only where requests conflict.
//
// An entry costs between 0 and 2(N-1) messages: none while nobody else asks,
// 2(N-1) at first and when everybody asks in turn. The delay is none or two
// message hops, and one hop from a release to the next entry. The channels may
// reorder messages. One node that stops answering stops those that must ask it
// and, through those who wait for it, everybody who must ask them.
//
// A node may forget the permissions that it has, as long as it is idle: a
// permission is the right not to ask, and nobody but its owner has a note of it.
//
// Departures from the paper: those of [New]. As a cancelled request runs its
// course, no permission comes that was not awaited.
func Carvalho(s dmutex.Start) (dmutex.Machine, error) {
	plain, err := New(s)
	if err != nil {
		return nil, err
	}
	return &carvalho{*plain.(*Machine)}, nil
}

// carvalho is a Machine that keeps permissions.
type carvalho struct{ Machine }

// Request implements [dmutex.Machine]. It asks those whose permission is
// missing.
func (m *carvalho) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wake()
	defer m.rest()
	for j := range m.site.Peers() {
		if !m.kept[j] {
			m.ask(j)
		}
	}
	m.tryEnter()
	return m.site.Out(), nil
}

func (m *carvalho) ask(j int) {
	m.awaiting[j] = true
	m.missing++
	m.site.Send(dmutex.Request, m.site.Peers()[j], m.site.Stamp().Clock)
}

// Handle implements [dmutex.Machine]. The plain machine does its part; what is
// added is who has the permission.
func (m *carvalho) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.site.Check(msg)
	if err != nil {
		return nil, err
	}
	m.wake()
	defer m.rest()
	kept := m.kept[j]
	switch {
	case msg.Kind == dmutex.Request:
		kept = false // it goes with the REPLY, now or when we leave
	case msg.Kind == dmutex.Reply && m.awaiting[j] && msg.Attempt == m.site.Stamp().Clock:
		kept = m.deferred[j] == 0
	}
	if err := m.hear(j, msg); err != nil {
		return nil, err
	}
	m.kept[j] = kept
	if msg.Kind == dmutex.Request && m.site.Pending() && !m.awaiting[j] && m.deferred[j] == 0 {
		m.ask(j)
	}
	return m.site.Out(), nil
}

// Keeps implements [dmutex.Keeper]: an idle node that forgets the permissions that
// it has will have to ask for them again.
func (m *carvalho) Keeps() bool {
	_, _, idle := m.Forget()
	for j := range m.site.Peers() {
		if idle && m.has(j) {
			return true
		}
	}
	return false
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *carvalho) AppendText(b []byte) ([]byte, error) {
	b, err := m.Machine.AppendText(append(b, "carvalho "...))
	for j, peer := range m.site.Peers() {
		if m.has(j) {
			b = append(b, " kept "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
		}
	}
	return b, err
}

// Clone returns an independent copy.
func (m *carvalho) Clone() dmutex.Machine {
	return &carvalho{*m.Machine.Clone().(*Machine)}
}
