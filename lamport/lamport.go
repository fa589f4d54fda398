// Package lamport is Lamport's algorithm: everybody keeps the queue of all
// requests, in the order of their stamps, and the first of it enters.
//
// Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System",
// CACM 21(7), 1978.
//
// # Theory of operation
//
// A node that wants the critical section stamps its request with its logical
// clock and its number, puts it into its own queue and sends it to all others
// as REQUEST. A node that receives a REQUEST puts it into its queue and sends
// REPLY. A node that leaves the critical section takes its request out of its
// queue and sends RELEASE to all others, which take it out of theirs. A node
// enters when, in its own view,
//
//	L1  a message stamped later than its request has come from every other node, and
//	L2  its request goes before every other one in its queue.
//
// Every message carries the time at which it was sent, and a receiver moves
// its clock past that time: a REPLY is always later than what it answers. (Some
// textbooks move it only up to that time, which is not enough: of two nodes L1
// would never hold for the higher.)
//
// Mutual exclusion. The queues are not the same everywhere, nor need they be.
// If i is in the critical section, then by L1 it has received every request
// that goes before its own, for on a channel that keeps the order nothing
// earlier is still under way; by L2 each of them has been released. Of two
// nodes in the critical section, the one with the later stamp would have the
// other's request in its queue. So grants are in the order of the stamps.
//
// Progress. Nothing is ever deferred: every peer has sent a REPLY, or something
// later (L1), and of the pending requests one goes before all others (L2).
//
// Order and count. The channels must keep the order of messages: a REPLY that
// overtakes a REQUEST lets two nodes in. Every entry costs exactly 3(N-1)
// messages. The delay is two message hops when nobody else is interested, one
// hop from a release to the next entry. One node that stops answering stops
// everybody.
//
// Many a REPLY may be omitted, see [OmitReplies]; then an entry costs 2(N-1) to
// 3(N-1).
//
// Departures from the paper: our own request is not in our queue, but is held
// against it; messages carry the highest fence known; a cancelled request runs
// its course as [dmutex.Site] tells.
package lamport

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Machine].
type Machine struct {
	site     dmutex.Site
	queue    []dmutex.Stamp // the requests of the others in their order, at most one a node; ours is the site's
	*answers                // nil at rest: no request of ours is pending, see rest.go
}

// The answers to our pending request.
type answers struct {
	later []bool // by peer: it has sent something later than our request (L1)
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. It has the shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	m, err := newMachine(s)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// OmitReplies is the algorithm without the replies that tell nothing new: a
// node answers no REQUEST while it has a request of its own, pending (withdrawn
// or not) or held. It has the shape of [dmutex.Algorithm]. Nodes with and
// without it work together.
//
// This is right because a REPLY serves only L1, and something else will serve
// as well. If our request is the later one, our REQUEST does: it was sent to
// the same peer before theirs came here, and is there sooner than a REPLY would
// be. If ours goes first, our RELEASE does: it is sent after theirs came, so it
// is later, and by L2 they await it anyway. So nobody enters any later than
// with all replies; and of the requests that are pending or held, the first
// waits for no RELEASE but those already sent. The channels must keep the order
// all the same: a RELEASE that overtakes its REQUEST leaves it in the queue.
//
// An entry costs 2(N-1) messages if everybody always requests, and 3(N-1) if
// nobody else does. The paper itself, in a footnote to its rule 2, omits a REPLY
// if any message stamped later than the request has been sent to the same node
// already. The rule in textbooks (Singhal and Shivaratri, Advanced
// Concepts in Operating Systems, 1994) omits a REPLY only if our request is the
// later one. Then only requests that cross save anything: nothing if everybody
// always requests, for who asks anew has heard of all other requests, and goes
// after them.
func OmitReplies(s dmutex.Start) (dmutex.Machine, error) {
	m, err := newMachine(s)
	if err != nil {
		return nil, err
	}
	return &omitting{*m}, nil
}

func newMachine(s dmutex.Start) (*Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	m := &Machine{site: site}
	if s.Holder != dmutex.None && s.Holder != s.Self {
		m.queue = []dmutex.Stamp{{Clock: dmutex.Carried, Node: s.Holder}}
	}
	return m, nil
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wake()
	defer m.rest()
	clear(m.later)
	m.broadcast(dmutex.Request, m.site.Stamp())
	m.tryEnter()
	return m.site.Out(), nil
}

// Cancel implements [dmutex.Machine].
func (m *Machine) Cancel() ([]dmutex.Message, error) {
	return nil, m.site.Cancel()
}

// Release implements [dmutex.Machine].
func (m *Machine) Release() ([]dmutex.Message, error) {
	mine := m.site.Stamp()
	if err := m.site.Release(); err != nil {
		return nil, err
	}
	m.leave(mine)
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.site.Check(msg)
	if err != nil {
		return nil, err
	}
	if why := m.impossible(msg); why != "" {
		return nil, m.site.Refuse(msg, why)
	}
	defer m.rest()
	m.witness(j, msg)
	switch msg.Kind {
	case dmutex.Request:
		m.request(msg)
	case dmutex.Release:
		m.release(msg)
	}
	m.tryEnter()
	return m.site.Out(), nil
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *Machine) impossible(msg dmutex.Message) string {
	switch msg.Kind {
	case dmutex.Request:
		switch waits := m.waiting(msg.From); {
		case msg.Clock != msg.Attempt:
			return "a request is sent at the time that it is stamped with"
		case waits != 0 && waits < msg.Attempt:
			return "the sender's last request is still in the queue"
		}
	case dmutex.Reply, dmutex.Release:
		switch {
		case msg.Clock <= msg.Attempt:
			return "it is not later than the request that it is about"
		case msg.Kind == dmutex.Reply && msg.Attempt > m.site.Clock():
			return "it answers a request that was never made"
		}
	default:
		return "Lamport's algorithm has no such message"
	}
	return ""
}

// witness moves the clock past the message's time, and holds the message
// against L1.
func (m *Machine) witness(j int, msg dmutex.Message) {
	m.site.Witness(msg.Clock, msg.Fence)
	m.site.Tick()
	if m.site.Pending() && m.site.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From}) {
		m.later[j] = true
	}
}

// waiting returns the number of a node's request in the queue, 0 if none.
func (m *Machine) waiting(node dmutex.NodeID) uint64 {
	for _, r := range m.queue {
		if r.Node == node {
			return r.Clock
		}
	}
	return 0
}

// request queues a peer's REQUEST and answers it.
func (m *Machine) request(msg dmutex.Message) {
	if msg.Attempt <= m.waiting(msg.From) {
		return // repeated
	}
	r := dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}
	at, _ := slices.BinarySearchFunc(m.queue, r, dmutex.Stamp.Compare)
	m.queue = slices.Insert(m.queue, at, r)
	m.send(dmutex.Reply, msg.From, msg.Attempt)
}

// release takes a peer's request out of the queue.
func (m *Machine) release(msg dmutex.Message) {
	if i := slices.Index(m.queue, dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}); i >= 0 {
		m.queue = slices.Delete(m.queue, i, i+1)
	}
}

// tryEnter enters when L1 and L2 hold. For a withdrawn request the critical
// section is empty.
func (m *Machine) tryEnter() {
	mine := m.site.Stamp()
	if m.site.Pending() && m.first(mine) && !m.site.Enter() {
		m.leave(mine)
	}
}

// first reports whether L1 and L2 hold for our request.
func (m *Machine) first(mine dmutex.Stamp) bool {
	return !slices.Contains(m.later, false) && (len(m.queue) == 0 || mine.Less(m.queue[0]))
}

// leave tells all others that our request is over.
func (m *Machine) leave(mine dmutex.Stamp) {
	m.site.Tick()
	m.broadcast(dmutex.Release, mine)
}

func (m *Machine) broadcast(kind dmutex.Kind, mine dmutex.Stamp) {
	for _, peer := range m.site.Peers() {
		m.send(kind, peer, mine.Clock)
	}
}

// send adds the time, which every message carries.
func (m *Machine) send(kind dmutex.Kind, to dmutex.NodeID, attempt uint64) {
	m.site.Send(kind, to, attempt).Clock = m.site.Clock()
}

// WaitsFor implements [dmutex.Machine]: those of whom nothing later has come, and
// those ahead in the queue. Whoever is in the critical section is one of these.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if !m.site.Pending() {
		return b
	}
	for j, peer := range m.site.Peers() {
		theirs := dmutex.Stamp{Clock: m.waiting(peer), Node: peer}
		if !m.later[j] || theirs.Clock != 0 && theirs.Less(m.site.Stamp()) {
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

// Forget implements [dmutex.Machine]. What came before the next request is
// not later than it.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, ok = m.site.Forget()
	return clock, fence, ok && len(m.queue) == 0
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b, err := m.site.AppendText(append(b, "lamport "...))
	for _, peer := range m.site.Peers() {
		if t := m.waiting(peer); t != 0 {
			b = append(b, " queued "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
			b = append(b, '@')
			b = strconv.AppendUint(b, t, 10)
		}
	}
	if !m.site.Pending() {
		return b, err
	}
	for j, peer := range m.site.Peers() {
		if m.later[j] {
			b = append(b, " later "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
		}
	}
	return b, err
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := *m
	c.site = m.site.Clone()
	c.queue = slices.Clone(m.queue)
	if m.answers != nil {
		c.answers = &answers{slices.Clone(m.later)}
	}
	return &c
}

// omitting is a Machine that omits replies, see [OmitReplies].
type omitting struct{ Machine }

// Handle implements [dmutex.Machine]. The plain machine does its part, and of
// what it sends the REPLY is omitted if we have a request of our own.
func (m *omitting) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	ours := m.site.Stamp().Clock != 0
	out, err := m.Machine.Handle(msg)
	if ours { // our own REQUEST is later, or our RELEASE will be
		out = slices.DeleteFunc(out, func(o dmutex.Message) bool { return o.Kind == dmutex.Reply })
	}
	return out, err
}

// Clone returns an independent copy.
func (m *omitting) Clone() dmutex.Machine {
	return &omitting{*m.Machine.Clone().(*Machine)}
}
