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
// Departures from the paper: the queue has one place a node, which is all that
// is ever used; messages carry the highest fence known; a cancelled request runs
// its course as [dmutex.Site] tells.
package lamport

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Machine],
// [dmutex.Forgetter] and [dmutex.Waiter].
type Machine struct {
	site dmutex.Site
	*requests
	*answers
}

// requests are the queue. A machine whose queue is empty has the blank for it,
// which is not written.
type requests struct {
	queue []uint64 // by peer: the time of its request, 0 if none; ours is the site's
}

// answers are what L1 goes by. A machine without a pending request has the blank
// for it, which is not written.
type answers struct {
	later []bool // by peer: it has sent something later than our pending request (L1)
}

// common is what the machines of all locks share.
type common struct {
	requests requests
	answers  answers
	omit     bool // see OmitReplies
}

func newCommon(s *dmutex.Site) any {
	n := len(s.Peers())
	return &common{requests: requests{make([]uint64, n)}, answers: answers{make([]bool, n)}}
}

func (m *Machine) common() *common { return m.site.Common(func() any { return newCommon(&m.site) }).(*common) }

// wakeQueue gives the machine a queue to write to, if it has the blank.
func (m *Machine) wakeQueue() {
	if m.requests != &m.common().requests {
		return
	}
	if m.requests = dmutex.Take[requests](&m.site); m.requests == nil {
		m.requests = &requests{make([]uint64, len(m.site.Peers()))}
	}
}

// wakeLater gives the machine answers to count, if it has the blank, and counts
// none of them.
func (m *Machine) wakeLater() {
	if m.answers == &m.common().answers {
		if m.answers = dmutex.Take[answers](&m.site); m.answers == nil {
			m.answers = &answers{make([]bool, len(m.site.Peers()))}
		}
	}
	clear(m.later)
}

// layQueue lays an empty queue aside.
func (m *Machine) layQueue() {
	if c := m.common(); m.requests != &c.requests && !m.queued() {
		m.site.Lay(m.requests)
		m.requests = &c.requests
	}
}

// layLater lays aside what was counted for a request that is granted.
func (m *Machine) layLater() {
	m.site.Lay(m.answers)
	m.answers = &m.common().answers
}

// queued reports whether a peer's request is in the queue.
func (m *Machine) queued() bool {
	return slices.ContainsFunc(m.queue, func(t uint64) bool { return t != 0 })
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. It has the shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, false) }

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
func OmitReplies(s dmutex.Start) (dmutex.Machine, error) { return newMachine(s, true) }

func newMachine(s dmutex.Start, omit bool) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	m := &Machine{site: site}
	c := m.common()
	m.requests, m.answers, c.omit = &c.requests, &c.answers, omit
	if j, peer := slices.BinarySearch(site.Peers(), s.Holder); peer {
		m.wakeQueue()
		m.queue[j] = dmutex.Carried
	}
	return m, nil
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wakeLater()
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
	if why := m.impossible(j, msg); why != "" {
		return nil, m.site.Refuse(msg, why)
	}
	m.witness(j, msg)
	switch msg.Kind {
	case dmutex.Request:
		m.request(j, msg)
	case dmutex.Release:
		m.release(j, msg)
	}
	m.tryEnter()
	return m.site.Out(), nil
}

// impossible says why no correct peer sends msg, and "" if one may.
func (m *Machine) impossible(j int, msg dmutex.Message) string {
	switch msg.Kind {
	case dmutex.Request:
		switch {
		case msg.Clock != msg.Attempt:
			return "a request is sent at the time that it is stamped with"
		case m.queue[j] != 0 && m.queue[j] < msg.Attempt:
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

// request queues a peer's REQUEST and answers it, unless [OmitReplies] has it
// that our own answers.
func (m *Machine) request(j int, msg dmutex.Message) {
	if msg.Attempt <= m.queue[j] {
		return // repeated
	}
	m.wakeQueue()
	m.queue[j] = msg.Attempt
	if m.common().omit && m.site.Stamp().Clock != 0 {
		return // our own REQUEST is later, or our RELEASE will be
	}
	m.send(dmutex.Reply, msg.From, msg.Attempt)
}

// release takes a peer's request out of the queue.
func (m *Machine) release(j int, msg dmutex.Message) {
	if m.queue[j] == msg.Attempt {
		m.queue[j] = 0
		m.layQueue()
	}
}

// tryEnter enters when L1 and L2 hold. For a withdrawn request the critical
// section is empty.
func (m *Machine) tryEnter() {
	mine := m.site.Stamp()
	if !m.site.Pending() || !m.first(mine) {
		return
	}
	m.layLater()
	if !m.site.Enter() {
		m.leave(mine)
	}
}

// first reports whether L1 and L2 hold for our request.
func (m *Machine) first(mine dmutex.Stamp) bool {
	for j := range m.queue {
		if m.behind(j, mine) {
			return false
		}
	}
	return true
}

// behind reports whether L1 or L2 does not hold with a peer.
func (m *Machine) behind(j int, mine dmutex.Stamp) bool {
	theirs := dmutex.Stamp{Clock: m.queue[j], Node: m.site.Peers()[j]}
	return !m.later[j] || theirs.Clock != 0 && theirs.Less(mine)
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

// WaitsFor implements [dmutex.Waiter]: those of whom nothing later has come, and
// those ahead in the queue. Whoever is in the critical section is one of these.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	for j, peer := range m.site.Peers() {
		if m.site.Phase() == dmutex.Waiting && m.behind(j, m.site.Stamp()) {
			b = append(b, peer)
		}
	}
	return b
}

// Phase implements [dmutex.Machine].
func (m *Machine) Phase() dmutex.Phase { return m.site.Phase() }

// Pending implements [dmutex.Pender].
func (m *Machine) Pending() bool { return m.site.Pending() }

// Fence implements [dmutex.Machine].
func (m *Machine) Fence() uint64 { return m.site.Fence() }

// Forget implements [dmutex.Forgetter]. What came before the next request is
// not later than it.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, ok = m.site.Forget()
	return clock, fence, ok && !m.queued()
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b, err := m.site.AppendText(append(b, "lamport "...))
	for j, peer := range m.site.Peers() {
		if t := m.queue[j]; t != 0 {
			b = append(b, " queued "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
			b = append(b, '@')
			b = strconv.AppendUint(b, t, 10)
		}
	}
	for j, peer := range m.site.Peers() {
		if m.later[j] && m.site.Pending() {
			b = append(b, " later "...)
			b = strconv.AppendUint(b, uint64(peer), 10)
		}
	}
	return b, err
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := &Machine{m.site.Clone(), m.requests, m.answers}
	blank := m.common()
	if m.requests != &blank.requests {
		c.requests = &requests{slices.Clone(m.queue)}
	}
	if m.answers != &blank.answers {
		c.answers = &answers{slices.Clone(m.later)}
	}
	return c
}
