// Package ricart is the algorithm of Ricart and Agrawala: ask all other nodes,
// and enter when all have replied.
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
// it defers the REPLY until it leaves. There is no other message: the REPLY
// means both "I do not mind" and "I have left".
//
// Mutual exclusion. While a request of j is pending or in the critical section
// and i has answered it, any request that i has is larger. This holds because
// i answers only when its own request is larger or when it has none; in the
// latter case its clock is now at least that of j's request (rule K2), and its
// next request gets a higher one (rule K1). So if two nodes were in the
// critical section, each would have the larger stamp.
//
// Sharing. A node may ask by SHARE in place of REQUEST, to be in the critical section together
// with others that share. The only difference is that a node whose own request shares defers no
// REPLY to a SHARE: the two do not conflict. ("Readers and writers by a simple modification", says
// the paper's abstract.) The rest holds for each two requests that conflict.
//
// A withdrawn REQUEST still awaits its turn, which costs nothing. But it must not keep out nodes that
// share, and its node does not know that it does. So a node whose own request, pending or held, shares
// and that defers the REPLY to a REQUEST sends INQUIRE. Then a withdrawn REQUEST is over at once: its
// node replies to all that it has deferred, and sends RELEASE to those that have sent INQUIRE, which owe
// it no REPLY any more. If an INQUIRE comes later, so does the RELEASE. Until a REQUEST is withdrawn, its
// node remembers from which nodes it has INQUIRE.
//
// Progress. The request with the smallest stamp is deferred only by a node in
// the critical section, which leaves.
//
// Order and count. The channels may reorder messages: what a node answers depends on
// stamps, not on arrival. Every entry costs exactly 2(N-1) messages, and one that waits for nodes
// that share an INQUIRE from each of them. The delay is two
// message hops when no other node is interested, and one hop from a release to the next
// entry. A node that stops answering stops all nodes.
//
// Departures from the paper: a REPLY names the request that it answers, and
// replies are a set of nodes, not a count, so that an old or repeated one is
// ignored; fences and canceled requests as [site.Site] describes.
package ricart

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

// A core is what the machines of [New] and [Carvalho] have in common.
type core struct {
	site.Machine
	awaiting []bool   // by peer: its REPLY is missing
	deferred []uint64 // by peer: the time of its REQUEST that we shall answer when we leave; 0 if none
}

type machine struct {
	core
	inquires []bool // by peer: we await its REPLY, and have its INQUIRE
}

// New makes the machine of one lock at one node. It is a [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.NewShared(s)
	if err != nil {
		return nil, err
	}
	return site.Complete(&machine{newCore(own), make([]bool, len(own.Peers()))}), nil
}

func newCore(own site.Site) core {
	n := len(own.Peers())
	return core{Machine: site.Machine{Site: own}, awaiting: make([]bool, n), deferred: make([]uint64, n)}
}

func (m *machine) Request() ([]dmutex.Message, error) { return m.askAll(dmutex.Request) }

// Share implements [dmutex.Sharer].
func (m *machine) Share() ([]dmutex.Message, error) { return m.askAll(dmutex.Share) }

func (m *machine) askAll(kind dmutex.Kind) ([]dmutex.Message, error) {
	if fresh, err := m.Ask(kind); err != nil || !fresh {
		return nil, err
	}
	for j := range m.Peers() {
		m.ask(j)
	}
	m.tryEnter()
	return m.Out(), nil
}

func (m *core) ask(j int) {
	kind := dmutex.Request
	if m.Shared() {
		kind = dmutex.Share
	}
	m.awaiting[j] = true
	m.Send(kind, m.Peers()[j], m.Stamp().Clock)
}

func (m *core) Release() ([]dmutex.Message, error) {
	if _, err := m.Leave(); err != nil {
		return nil, err
	}
	m.replyDeferred()
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

func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	j, err := m.Check(msg, m.impossible)
	if err != nil {
		return nil, err
	}
	switch msg.Kind {
	case dmutex.Request, dmutex.Share:
		m.request(j, msg)
		if m.deferred[j] == msg.Attempt && m.Shared() {
			m.Send(dmutex.Inquire, msg.From, msg.Attempt)
		}
	case dmutex.Reply:
		if m.answers(j, msg) {
			m.inquires[j] = false
		}
		m.reply(j, msg)
	case dmutex.Inquire:
		m.inquire(j, msg)
	case dmutex.Release:
		m.release(j, msg)
	}
	return m.Out(), nil
}

// inquire notes that our pending request keeps out nodes that share. If it is over, the peer must know.
func (m *machine) inquire(j int, msg dmutex.Message) {
	m.Witness(0, msg.Fence)
	switch {
	case msg.Attempt != m.Stamp().Clock:
		m.Send(dmutex.Release, msg.From, msg.Attempt)
	case m.awaiting[j]:
		m.inquires[j] = true
		m.tryWithdraw()
	}
}

// tryWithdraw ends a withdrawn request that keeps out nodes that share.
func (m *machine) tryWithdraw() {
	if !slices.Contains(m.inquires, true) {
		return
	}
	over, withdrawn := m.Withdraw()
	if !withdrawn {
		return
	}
	m.replyDeferred()
	for j, peer := range m.Peers() {
		if m.inquires[j] {
			m.Send(dmutex.Release, peer, over.Clock)
		}
	}
	clear(m.awaiting)
	clear(m.inquires)
}

// release forgets a deferred REPLY that the peer does not await any more.
func (m *machine) release(j int, msg dmutex.Message) {
	m.Witness(0, msg.Fence)
	if m.deferred[j] == msg.Attempt {
		m.deferred[j] = 0
	}
}

func (m *core) request(j int, msg dmutex.Message) {
	m.Witness(msg.Attempt, msg.Fence)
	conflicts := msg.Kind == dmutex.Request || !m.Shared()
	if conflicts && m.goesFirst(dmutex.Stamp{Clock: msg.Attempt, Node: msg.From}) {
		m.deferred[j] = max(m.deferred[j], msg.Attempt)
		return
	}
	m.Send(dmutex.Reply, msg.From, msg.Attempt)
}

// goesFirst reports whether our own request, if any, goes before theirs.
func (m *core) goesFirst(theirs dmutex.Stamp) bool {
	return m.Phase() == dmutex.Held || m.Pending() && m.Stamp().Less(theirs)
}

// reply counts a peer's REPLY if it answers our pending request.
func (m *core) reply(j int, msg dmutex.Message) {
	m.Witness(0, msg.Fence)
	if m.answers(j, msg) {
		m.awaiting[j] = false
		m.tryEnter()
	}
}

// answers reports whether a REPLY is one that we await.
func (m *core) answers(j int, reply dmutex.Message) bool {
	return m.awaiting[j] && reply.Attempt == m.Stamp().Clock
}

func (m *core) tryEnter() {
	if slices.Contains(m.awaiting, true) {
		return
	}
	if withdrawn := m.Enter(); withdrawn {
		m.replyDeferred()
	}
}

func (m *core) replyDeferred() {
	for j, peer := range m.Peers() {
		if m.deferred[j] != 0 {
			m.Send(dmutex.Reply, peer, m.deferred[j])
			m.deferred[j] = 0
		}
	}
}
