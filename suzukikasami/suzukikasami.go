// Package suzukikasami is the algorithm of Suzuki and Kasami: the node that has
// the token may enter. A node sends its request to all others, because it does
// not know which of them has the token.
//
// Suzuki and Kasami, "A Distributed Mutual Exclusion Algorithm", ACM TOCS 3(4),
// 1985.
//
// # Theory of operation
//
// There is one token. A node that has it may enter at any time. Any other
// node sends REQUEST with the number of its request to all others, and enters
// when TOKEN arrives. Each node i keeps
//
//	RN[j]  the highest number that it knows of a request of j
//
// and the token carries
//
//	Q      the nodes that are to have it next
//	LN[j]  the number of the last request of j that was put into Q or served
//
// So only the holder of the token can tell a new request, RN[j] > LN[j], from
// one that is outdated because the token was faster than the REQUEST. When a
// node leaves it appends to Q every node with a new request and sends TOKEN to
// the head of Q. If Q is empty it keeps the token, idle, and sends it to the
// first REQUEST that is not outdated.
//
// Mutual exclusion. There is one token: a node that sends it no longer has it.
//
// Progress. When a REQUEST has reached all nodes, the node that has the token knows of it:
// then it is in Q or served at once, and Q is served in order, so at most N-1 others enter
// first. The search for new entries begins behind the node that leaves and goes around;
// from a fixed place the nodes near it would always be first.
//
// Order and count. The channels may reorder messages, and may repeat them: a TOKEN names
// the request that it serves, and one that serves another is dropped. They must not lose
// any. An entry costs exactly N messages, N-1 REQUEST and one TOKEN, or none if the node
// has the token. The delay is two message hops when no other node is interested, none for
// the node that entered last, and one hop from a release to the next entry. REQUESTs queue
// up on the way to a slow node, and only the last one from each sender matters. A crash of
// the node that has the token, even idle, stops all nodes. A crash of another node stops
// them when the token is sent to it.
//
// A machine cannot be forgotten: a node would need RN again if the token came to
// it while a request is pending, and only the holder knows which requests are.
//
// Departures from the paper: LN is written when a request is put into Q, not
// when it has been served, and so it also tells which nodes are in Q; every
// request has a number, even one that needs no message; a request is new if
// RN[j] > LN[j], where the paper has RN[j] = LN[j]+1, so numbers may leave gaps;
// TOKEN names the request that it serves; the order of the search; fences and
// canceled requests as [site.Site] describes.
package suzukikasami

import (
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/site"
)

type machine struct {
	site.Machine
	rn []uint64 // RN, by member

	// The token, with LN and Q, if it is here.
	token bool
	ln    []uint64        // LN, by member
	q     []dmutex.NodeID // Q
}

// New is a [dmutex.Algorithm]. Without a Holder, [dmutex.Start.Home] begins with the token.
func New(s dmutex.Start) (dmutex.Machine, error) {
	own, err := site.New(s)
	if err != nil {
		return nil, err
	}
	first := s.Holder
	if first == dmutex.None {
		first = site.Home(s, dmutex.None)
	}
	n, me := len(s.Members), own.Place()
	m := &machine{Machine: site.Machine{Site: own}, rn: make([]uint64, n), token: first == s.Self, ln: make([]uint64, n)}
	if s.Holder == s.Self {
		m.rn[me], m.ln[me] = site.Carried, site.Carried
	}
	return site.Complete(m), nil
}

// place returns where a node stands among the members, and -1 for a stranger.
func (m *machine) place(node dmutex.NodeID) int { return slices.Index(m.Members(), node) }

func (m *machine) Request() ([]dmutex.Message, error) {
	if fresh, err := m.Ask(dmutex.Request); err != nil || !fresh {
		return nil, err
	}
	me := m.Place()
	m.rn[me] = m.Stamp().Clock
	if m.token {
		m.ln[me] = m.rn[me]
		m.Enter()
		return nil, nil
	}
	for _, peer := range m.Peers() {
		m.Send(dmutex.Request, peer, m.rn[me])
	}
	return m.Out(), nil
}

func (m *machine) Release() ([]dmutex.Message, error) {
	if _, err := m.Leave(); err != nil {
		return nil, err
	}
	m.handOn()
	return m.Out(), nil
}

func (m *machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.Check(msg, m.impossible); err != nil {
		return nil, err
	}
	switch msg.Kind {
	case dmutex.Request:
		m.request(msg)
	case dmutex.Token:
		m.take(msg)
	}
	return m.Out(), nil
}

func (m *machine) request(msg dmutex.Message) {
	m.Witness(0, msg.Fence)
	j := m.place(msg.From)
	m.rn[j] = max(m.rn[j], msg.Attempt)
	if m.token && m.Phase() == dmutex.Idle && m.rn[j] > m.ln[j] {
		m.handOn()
	}
}

// take takes the TOKEN and enters, if it serves our pending request.
func (m *machine) take(msg dmutex.Message) {
	if !m.serves(msg) {
		return // repeated
	}
	m.Witness(0, msg.Fence)
	m.token = true
	m.ln = append(m.ln[:0], msg.Numbers...)
	m.q = append(m.q[:0], msg.Nodes...)
	if withdrawn := m.Enter(); withdrawn {
		m.handOn()
	}
}

// serves reports whether a TOKEN is for our pending request.
func (m *machine) serves(token dmutex.Message) bool {
	return m.Pending() && token.Attempt == m.Stamp().Clock
}

func (m *machine) handOn() {
	members := m.Members()
	for i := 1; i < len(members); i++ {
		if j := (m.Place() + i) % len(members); m.rn[j] > m.ln[j] {
			m.ln[j] = m.rn[j]
			m.q = append(m.q, members[j])
		}
	}
	if len(m.q) == 0 {
		return
	}
	head := m.q[0]
	m.q = slices.Delete(m.q, 0, 1)
	token := m.Send(dmutex.Token, head, m.ln[m.place(head)])
	token.Numbers, token.Nodes = m.ln, m.q
	m.token = false
}
