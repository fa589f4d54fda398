package deadlock

import "github.com/dmutex/dmutex"

// NewOr returns the machine of a node in the OR model: it waits until any one of the nodes that
// it has asked has granted. It is active. The error is [dmutex.ErrMisuse] if the members contain
// 0 or a node twice, or lack self.
//
// The idea is from Dijkstra and Scholten, "Termination Detection for
// Diffusing Computations", Information Processing Letters 11(1), 1980.
//
// # Theory of operation
//
// A blocked node i begins its n-th computation by sending QUERY(i,n) to all nodes
// that it waits for. An active node drops it. A blocked node that receives the first
// QUERY of a computation, the engaging one, sends QUERY to all nodes that it waits
// for itself; it answers every further QUERY with REPLY at once. It keeps, for each
// initiator,
//
//	latest   the number of the last computation that it has met
//	wait     the number of the wait in which it met that: if it is the present one, the
//	         node has been blocked ever since
//	engager  the sender of the engaging QUERY
//	num      how many of its own QUERYs are not yet answered
//
// and when all are answered, it sends REPLY to the engager. When the initiator has all its
// REPLYs, every node that it can reach along waits has been blocked since its QUERY came: it
// is deadlocked.
//
// Every declaration is true. A node that becomes active and blocks again has lost
// all its wait flags, and does not answer. A grant in flight to a node that
// has answered was sent before its sender became blocked, hence before the
// sender answered, and arrives before that REPLY on the same channel.
//
// Every deadlock is declared. When the last node of a deadlock begins a
// computation, all are blocked forever, and each answers every QUERY.
//
// Count. For e waits that can be reached, a computation sends at most e QUERYs,
// one over each wait, and at most e REPLYs.
//
// In the OR model a node does not need to know which nodes wait for it.
func NewOr(self dmutex.NodeID, members []dmutex.NodeID) (*Machine, error) {
	m, err := newMachine("or", self, members, func(m *Machine) rules { return or{m} })
	if err == nil {
		m.computations = make([]computation, len(members))
	}
	return m, err
}

type or struct{ *Machine }

// A computation is what a node keeps of an initiator's last computation.
type computation struct {
	latest  uint64
	wait    uint64
	engager int
	num     int
}

func (m or) granted(int) { m.unblock() }

func (m or) compute() { m.engage(m.me, m.me, m.seq) }

func (m or) engage(engager, initiator int, number uint64) {
	m.computations[initiator] = computation{latest: number, wait: m.wait, engager: engager, num: m.blocked}
	m.ask(Query, initiator, number)
}

func (m or) handle(from, i int, msg Message) (mistake string) {
	c := &m.computations[i]
	present := m.engaged(c) && msg.Number == c.latest
	switch {
	case msg.Kind == Query && m.blocked == 0:
	case msg.Kind == Query && msg.Number > c.latest:
		m.engage(from, i, msg.Number)
	case msg.Kind == Query && present:
		m.send(Reply, from, i, msg.Number)
	case msg.Kind == Query:
	case msg.Kind != Reply:
		return "the OR model has no such message"
	case msg.Number > c.latest, present && (!m.waits[from] || c.num == 0):
		return "it answers no QUERY"
	case present:
		m.replied(i)
	}
	return ""
}

// engaged reports whether a computation has found this node blocked, and it still is.
func (m *Machine) engaged(c *computation) bool { return m.blocked > 0 && c.wait == m.wait }

// replied counts a REPLY of a computation, and ends it here with the last.
func (m or) replied(i int) {
	c := &m.computations[i]
	switch c.num--; {
	case c.num > 0:
	case i == m.me:
		m.deadlocked = true
	default:
		m.send(Reply, c.engager, i, c.latest)
	}
}
