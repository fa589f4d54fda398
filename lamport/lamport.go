// Package lamport is Lamport's algorithm: every node keeps a queue of all
// requests, in the order of their stamps, and the first in the queue enters.
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
// textbooks move it only up to that time, which is not enough: with two nodes, L1
// would never hold for the one with the higher number.)
//
// Mutual exclusion. The queues are not the same everywhere, nor need they be.
// If i is in the critical section, then by L1 it has received every request
// that goes before its own, because on a channel that keeps the order nothing
// earlier is still in flight; by L2 each of them has been released. Of two
// nodes in the critical section, the one with the later stamp would have the
// other's request in its queue. So grants are in the order of the stamps.
//
// Sharing. A node may ask by SHARE in place of REQUEST, to be in the critical section together
// with others that share. The queue says which requests share, and L2 is about requests that
// conflict with ours: two that share do not.
//
// A withdrawn REQUEST still awaits its turn, which costs nothing more than the entry would have. But it must
// not keep out nodes that share. So as soon as its node has one that shares in its queue, it sends RELEASE,
// as after an entry. Every node hears of every request, so that it can tell.
//
// Progress. No message is ever deferred: every peer sends a REPLY, which is
// later (L1), and one of the pending requests goes before all others (L2).
//
// Order and count. The channels must keep the order of messages: a REPLY that overtakes a
// REQUEST lets two nodes in. Every entry costs exactly 3(N-1) messages. The delay is two
// message hops when no other node is interested, and one hop from a release to the next
// entry. A node that stops answering stops all nodes.
//
// Departures from the paper: our own request is not in our queue, but is compared with
// each request there; fences and canceled requests as [site.Site] describes.
// [OmitReplies] needs fewer messages.
package lamport

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

type machine struct {
	site.Machine
	queue  []uint64 // by peer: the time of its request in our queue, 0 if none; ours is the Site's
	shares []bool   // by peer: that request shares
	later  []bool   // by peer: it has sent something later than our pending request (L1)
}

// New makes the machine of one lock at one node. It is a [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.NewShared(s)
	if err != nil {
		return nil, err
	}
	return site.Complete(newMachine(own, s)), nil
}

func newMachine(own site.Site, s dmutex.Start) *machine {
	peers := own.Peers()
	m := &machine{site.Machine{Site: own}, make([]uint64, len(peers)), make([]bool, len(peers)), make([]bool, len(peers))}
	for j, peer := range peers {
		m.shares[j] = slices.Contains(s.Sharers, peer)
		if m.shares[j] || peer == s.Holder {
			m.queue[j] = site.Carried
		}
	}
	return m
}

func (m *machine) Request() ([]dmutex.Message, error) { return m.ask(dmutex.Request) }

// Share implements [dmutex.Sharer].
func (m *machine) Share() ([]dmutex.Message, error) { return m.ask(dmutex.Share) }

func (m *machine) ask(kind dmutex.Kind) ([]dmutex.Message, error) {
	if fresh, err := m.Ask(kind); err != nil || !fresh {
		return nil, err
	}
	clear(m.later)
	m.broadcast(kind, m.Stamp())
	m.tryEnter()
	return m.Out(), nil
}

func (m *machine) Release() ([]dmutex.Message, error) {
	over, err := m.Leave()
	if err != nil {
		return nil, err
	}
	m.sayOver(over)
	return m.Out(), nil
}

// Cancel implements [dmutex.Machine].
func (m *machine) Cancel() ([]dmutex.Message, error) {
	if _, err := m.Site.Cancel(); err != nil {
		return nil, err
	}
	m.tryWithdraw()
	return m.Out(), nil
}

// tryWithdraw ends a withdrawn request that keeps out nodes that share.
func (m *machine) tryWithdraw() {
	if !slices.Contains(m.shares, true) {
		return
	}
	if over, withdrawn := m.Withdraw(); withdrawn {
		m.sayOver(over)
	}
}

func (m *machine) sayOver(mine dmutex.Stamp) {
	m.Advance()
	m.broadcast(dmutex.Release, mine)
}

func (m *machine) broadcast(kind dmutex.Kind, mine dmutex.Stamp) {
	for _, peer := range m.Peers() {
		m.send(kind, peer, mine.Clock)
	}
}

func (m *machine) send(kind dmutex.Kind, to dmutex.NodeID, attempt uint64) {
	m.Send(kind, to, attempt).Clock = m.Clock()
}

// Handle takes a message from a peer. A REPLY matters only by its time (L1) and its fence.
func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.Check(msg, m.impossible)
	if err != nil {
		return nil, err
	}
	m.hear(j, msg)
	switch msg.Kind {
	case dmutex.Request, dmutex.Share:
		m.request(j, msg)
	case dmutex.Release:
		m.release(j, msg)
	}
	m.tryEnter()
	m.tryWithdraw()
	return m.Out(), nil
}

// hear moves the clock past the message's time, and notes whether the message is later than
// our request.
func (m *machine) hear(j int, msg dmutex.Message) {
	m.Witness(msg.Clock, msg.Fence)
	m.Advance()
	if m.Pending() && m.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From}) {
		m.later[j] = true
	}
}

func (m *machine) request(j int, msg dmutex.Message) {
	if msg.Attempt <= m.queue[j] {
		return // repeated
	}
	m.queue[j], m.shares[j] = msg.Attempt, msg.Kind == dmutex.Share
	m.send(dmutex.Reply, msg.From, msg.Attempt)
}

func (m *machine) release(j int, msg dmutex.Message) {
	if m.queue[j] == msg.Attempt {
		m.queue[j], m.shares[j] = 0, false
	}
}

// tryEnter enters when L1 and L2 hold for every peer.
func (m *machine) tryEnter() {
	if !m.Pending() {
		return
	}
	for j := range m.Peers() {
		if m.keepsOut(j) {
			return
		}
	}
	mine := m.Stamp()
	if withdrawn := m.Enter(); withdrawn {
		m.sayOver(mine)
	}
}

// keepsOut reports whether a peer has sent nothing later than our request (L1), or has
// a request in the queue that conflicts with ours and goes before it (L2).
func (m *machine) keepsOut(j int) bool {
	theirs := dmutex.Stamp{Clock: m.queue[j], Node: m.Peers()[j]}
	return !m.later[j] || m.conflicts(j) && theirs.Less(m.Stamp())
}

// conflicts reports whether a peer has a request in the queue that does not share with ours.
func (m *machine) conflicts(j int) bool {
	return m.queue[j] != 0 && !(m.shares[j] && m.Shared())
}
