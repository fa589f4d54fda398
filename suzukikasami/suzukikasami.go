// Package suzukikasami is the algorithm of Suzuki and Kasami: who has the token
// may enter; a request is sent to everybody, because nobody knows who that is.
//
// Suzuki and Kasami, "A Distributed Mutual Exclusion Algorithm", ACM TOCS 3(4),
// 1985.
//
// # Theory of operation
//
// There is one token. A node that has it enters at will. Any other sends
// REQUEST with the number of its request to all others, and enters when TOKEN
// comes. Each node i keeps
//
//	RN[j]  the highest number that it knows of a request of j
//
// and the token carries
//
//	Q      the nodes that are to have it next
//	LN[j]  the number of the last request of j that was put into Q or served
//
// So the holder of the token, and only it, can tell a request that is new,
// RN[j] > LN[j], from one that is outdated because the token was faster than
// the REQUEST. When a node leaves it appends to Q every node with a new request
// and sends TOKEN to the head of Q. If Q is empty it keeps the token, idle, and
// sends it to the first REQUEST that is not outdated.
//
// Mutual exclusion. There is one token: a node that sends it no longer has it.
//
// Progress. When a REQUEST has reached all nodes, whoever has the token knows
// of it: then it is in Q or served at once, and Q is served in order, so at
// most N-1 others enter first. The search for new entries begins behind the
// node that leaves and goes around; from a fixed place the nodes near it would
// always be the first.
//
// Order and count. The channels may reorder messages, and may repeat them: a
// TOKEN names the request that it serves, and one that serves another is
// dropped. They must not lose any. An entry costs exactly N messages, N-1
// REQUEST and one TOKEN, or none if the node has the token. The delay is two
// message hops when nobody else is interested, none for the node that entered
// last, and one hop from a release to the next entry. REQUESTs pile up on the
// way to a slow node, of which only each sender's last is of use. A crash of
// the holder stops everybody, also when it is idle; one of another node does
// when the token reaches it.
//
// A machine cannot be forgotten: RN is what a node would need again if the
// token came to it while a request is out, and only the holder knows which
// requests are.
//
// Departures from the paper: LN is written when a request is put into Q, not
// when it has been served, and so tells also who is in Q; every request has a
// number, also one that needs no message; a request is new if RN[j] > LN[j],
// where the paper has RN[j] = LN[j]+1, so numbers may leave gaps; TOKEN names
// the request that it serves; the order of the search; messages carry the
// highest fence known; a cancelled request runs its course as [dmutex.Site]
// tells.
package suzukikasami

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Machine is one lock at one node. It implements [dmutex.Keeper].
type Machine struct {
	site   dmutex.Site
	*lists            // nil at rest
	token  bool       // it is here, and with it LN and Q
	packed [11]uint16 // RN at rest, see rest.go
}

// The lists are what the paper says.
type lists struct {
	rn []uint64        // RN, by member
	ln []uint64        // LN, by member
	q  []dmutex.NodeID // Q
}

// New returns the machine of a fresh lock, or one that [dmutex.Start.Holder]
// holds. The member with the lowest number begins with the token, unless there
// is a Holder. New has the shape of [dmutex.Algorithm].
func New(s dmutex.Start) (dmutex.Machine, error) {
	return newMachine(s, dmutex.None)
}

// At returns the algorithm with the token at the given member to begin with,
// unless there is a [dmutex.Start.Holder]: then it has the token. All nodes of
// a group must name the same member, or there is more than one token; a Start
// of which it is no member is refused with [dmutex.ErrMisuse].
func At(node dmutex.NodeID) dmutex.Algorithm {
	return func(s dmutex.Start) (dmutex.Machine, error) {
		if !slices.Contains(s.Members, node) {
			return nil, dmutex.Misuse("the token is to begin at " + node.String() + ", which is not among Start.Members")
		}
		return newMachine(s, node)
	}
}

func newMachine(s dmutex.Start, first dmutex.NodeID) (dmutex.Machine, error) {
	site, err := dmutex.NewSite(s)
	if err != nil {
		return nil, err
	}
	switch {
	case s.Holder != dmutex.None:
		first = s.Holder
	case first == dmutex.None:
		first = site.Members()[0]
	}
	m := &Machine{site: site, token: first == s.Self}
	if s.Holder == s.Self {
		n, me := len(s.Members), site.Place()
		m.lists = &lists{rn: make([]uint64, n), ln: make([]uint64, n)}
		m.rn[me], m.ln[me] = dmutex.Carried, dmutex.Carried
		m.rest()
	}
	return m, nil
}

// place returns where a node stands among the members, and -1 if it is none.
func (m *Machine) place(node dmutex.NodeID) int {
	i, found := slices.BinarySearch(m.site.Members(), node)
	if !found {
		return -1
	}
	return i
}

// Request implements [dmutex.Machine].
func (m *Machine) Request() ([]dmutex.Message, error) {
	fresh, err := m.site.Request()
	if err != nil || !fresh {
		return nil, err
	}
	m.wake()
	defer m.rest()
	me := m.site.Place()
	m.rn[me] = m.site.Stamp().Clock
	if m.token {
		m.ln[me] = m.rn[me]
		m.site.Enter()
		return nil, nil
	}
	for _, peer := range m.site.Peers() {
		m.site.Send(dmutex.Request, peer, m.rn[me])
	}
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
	m.handOn()
	return m.site.Out(), nil
}

// Handle implements [dmutex.Machine].
func (m *Machine) Handle(msg dmutex.Message) ([]dmutex.Message, error) {
	if _, err := m.site.Check(msg); err != nil {
		return nil, err
	}
	m.wake()
	defer m.rest()
	switch msg.Kind {
	case dmutex.Request:
		m.request(msg)
	case dmutex.Token:
		if err := m.take(msg); err != nil {
			return nil, err
		}
	default:
		return nil, m.site.Refuse(msg, "Suzuki-Kasami has no such message")
	}
	return m.site.Out(), nil
}

// request notes a peer's REQUEST. An idle token goes to it at once, unless it
// is outdated.
func (m *Machine) request(msg dmutex.Message) {
	m.site.Witness(0, msg.Fence)
	j := m.place(msg.From)
	m.rn[j] = max(m.rn[j], msg.Attempt)
	if m.token && m.site.Phase() == dmutex.Idle && m.rn[j] > m.ln[j] {
		m.handOn()
	}
}

// take takes the TOKEN and enters, if it serves our present request. For a
// withdrawn one the critical section is empty.
func (m *Machine) take(msg dmutex.Message) error {
	me := m.site.Place()
	switch {
	case msg.Attempt == 0:
		return m.site.Refuse(msg, "it names no request")
	case msg.Attempt > m.site.Clock():
		return m.site.Refuse(msg, "it serves a request that was never made")
	case !m.site.Pending() || msg.Attempt != m.rn[me]:
		return nil // repeated
	case len(msg.Numbers) != len(m.rn):
		return m.site.Refuse(msg, "LN has not one number for each member")
	case msg.Numbers[me] != msg.Attempt:
		return m.site.Refuse(msg, "by LN it serves another request")
	}
	for i, node := range msg.Nodes {
		if node == m.site.Self() || m.place(node) < 0 || slices.Contains(msg.Nodes[:i], node) {
			return m.site.Refuse(msg, "Q is not a list of different other members")
		}
	}
	m.site.Witness(0, msg.Fence)
	m.token = true
	m.ln = append(m.ln[:0], msg.Numbers...)
	m.q = append(m.q[:0], msg.Nodes...)
	if !m.site.Enter() {
		m.handOn()
	}
	return nil
}

// handOn puts those with a new request into Q, and sends the token to its head
// if there is one.
func (m *Machine) handOn() {
	members := m.site.Members()
	for i := 1; i < len(members); i++ {
		if j := (m.site.Place() + i) % len(members); m.rn[j] > m.ln[j] {
			m.ln[j] = m.rn[j]
			m.q = append(m.q, members[j])
		}
	}
	if len(m.q) == 0 {
		return
	}
	head := m.q[0]
	m.q = slices.Delete(m.q, 0, 1)
	token := m.site.Send(dmutex.Token, head, m.ln[m.place(head)])
	token.Numbers, token.Nodes = m.ln, m.q
	m.token = false
}

// WaitsFor implements [dmutex.Machine]: all peers, for nobody but its holder knows
// where the token is.
func (m *Machine) WaitsFor(b []dmutex.NodeID) []dmutex.NodeID {
	if m.site.Pending() {
		b = append(b, m.site.Peers()...)
	}
	return b
}

// Phase implements [dmutex.Machine].
func (m *Machine) Phase() dmutex.Phase { return m.site.Phase() }

// Pending implements [dmutex.Machine].
func (m *Machine) Pending() bool { return m.site.Pending() }

// Fence implements [dmutex.Machine].
func (m *Machine) Fence() uint64 { return m.site.Fence() }

// Forget implements [dmutex.Machine]. The answer is always no: the numbers of
// all requests, and where the token is, must be remembered.
func (m *Machine) Forget() (clock, fence uint64, ok bool) {
	clock, fence, _ = m.site.Forget()
	return clock, fence, false
}

// Keeps implements [dmutex.Keeper].
func (m *Machine) Keeps() bool {
	_, _, idle := m.site.Forget()
	return idle
}

// AppendText appends the canonical state: machines of equal text behave alike
// for ever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	m = m.awake()
	b, err := m.site.AppendText(append(b, "suzukikasami "...))
	b = appendNumbers(b, " rn=", m.rn)
	if m.token {
		b = appendNumbers(b, " token ln=", m.ln)
		b = appendNumbers(b, " q=", m.q)
	}
	return b, err
}

func appendNumbers[T ~uint64](b []byte, name string, numbers []T) []byte {
	for i, n := range numbers {
		if i == 0 {
			b = append(b, name...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return b
}

// Clone returns an independent copy.
func (m *Machine) Clone() dmutex.Machine {
	c := *m
	c.site = m.site.Clone()
	if l := m.lists; l != nil {
		c.lists = &lists{slices.Clone(l.rn), slices.Clone(l.ln), slices.Clone(l.q)}
	}
	return &c
}
