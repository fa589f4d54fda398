package election

import (
	"slices"

	"github.com/dmutex/dmutex"
)

// Ring is the ring algorithm: a list goes around, and the highest name on it wins.
//
// Tanenbaum and van Steen, "Distributed Systems", section "A ring algorithm"; from Le Lann,
// "Distributed Systems: Towards a Formal Approach", IFIP Congress, 1977.
//
// # Theory of operation
//
// The members form a ring, in the order of [Config.Members]. Each sends to its successor:
// the next that it does not suspect. A node that misses the leader sends ELECTION with its
// own name, the starter's. Each node that receives it appends its name and passes it on.
// When it comes back, the starter knows which nodes are alive: the highest on the list
// leads. COORDINATOR goes around once to announce it, and ends at a node that has seen it.
//
// If several run at once, the highest ballot wins: a node that has passed on one ballot
// drops the lower ones, whose lists would have named the same members. A lower ballot that
// reaches an idle node comes from a node that has missed something, and the idle node runs
// in its place. COORDINATOR has the ballot too, so that a node which has let another run
// since does not take the office from the first.
//
// Agreement. ELECTION dies with a node that crashes: every node that it has passed
// waits for the outcome, and begins again at the timeout. If only the starter has
// crashed, the list comes to a node that is on it, which begins again at once. A
// node begins when it suspects the leader, when it gets another successor (the ring
// has changed here), and when it hears of a leader that is lower than itself.
//
// With the majority rule, a node that passes ELECTION on ceases to lead, and the
// starter announces a leader only if the list is a majority. A node that reaches no
// majority itself passes the list on without its name.
//
// Count. With n nodes alive a lone election costs 2n messages: ELECTION and
// COORDINATOR go around once. Each further starter costs at most as many, and n at once at
// most n²+n together. (In the usual account every list goes around, at full cost.)
func Ring(c Config) (Machine, error) {
	return newMachine(c, "ring", func(m *machine) rules { return ring{circle{m}} })
}

type ring struct{ circle }

func (m ring) campaign() {
	m.run(m.config.Outcome)
	list := []dmutex.NodeID{m.members[m.me]}
	if m.successor() == m.me {
		m.conclude(m.ballot, list)
	}
	m.pass(Message{Kind: Election, Ballot: m.ballot, Nodes: list})
}

func (m ring) handle(_ int, msg Message) (mistake string) {
	switch n := uint64(len(m.members)); {
	case msg.Kind == Election && (!m.isList(msg.Nodes) || m.members[m.owner(msg.Ballot)] != msg.Nodes[0]):
		return "its nodes are not a list of different members with the ballot's first"
	case msg.Kind == Election:
		m.election(msg.Ballot, msg.Nodes)
	case msg.Kind == Coordinator && (msg.Ballot == 0 || msg.Ballot > msg.Epoch || msg.Ballot/n != msg.Epoch/n):
		return "its epoch does not come of its ballot"
	case msg.Kind == Coordinator:
		m.coordinator(msg.Ballot, msg.Epoch)
	default:
		return "the ring has no such message"
	}
	return ""
}

func (m ring) isList(nodes []dmutex.NodeID) bool {
	if len(nodes) > len(m.members) {
		return false
	}
	for i, node := range nodes {
		if _, member := slices.BinarySearch(m.members, node); !member || slices.Contains(nodes[:i], node) {
			return false
		}
	}
	return len(nodes) > 0
}

// election passes the highest ballot on, until it is back.
func (m ring) election(ballot uint64, list []dmutex.NodeID) {
	back := slices.Contains(list, m.members[m.me])
	switch {
	case m.owner(ballot) == m.me:
		if m.phase == asking && ballot == m.met {
			m.conclude(ballot, list)
		}
	case ballot > m.met:
		m.met = ballot
		m.yield()
		list = slices.Clone(list)
		if m.able() && !back {
			list = append(list, m.members[m.me])
		}
		m.pass(Message{Kind: Election, Ballot: ballot, Nodes: list})
	case ballot == m.met && back && m.phase == waiting:
		m.elect() // the starter has crashed
	case m.phase == idle:
		m.elect() // the starter has missed something
	}
}

// conclude announces the highest on the list. Too short a list is dropped, and
// the timeout begins another election.
func (m ring) conclude(ballot uint64, list []dmutex.NodeID) {
	if !m.enough(len(list)) {
		return
	}
	leader, _ := slices.BinarySearch(m.members, slices.Max(list))
	m.coordinator(ballot, ballot-uint64(m.owner(ballot))+uint64(leader))
}

// coordinator announces a leader to the successor, and follows or leads, if
// that is news and no later election has come by.
func (m ring) coordinator(ballot, epoch uint64) {
	if epoch <= m.epoch || ballot < m.met {
		return
	}
	m.pass(Message{Kind: Coordinator, Ballot: ballot, Epoch: epoch})
	switch {
	case m.owner(epoch) == m.me && m.able():
		m.lead(epoch)
	case m.learn(epoch):
		m.elect()
	}
}
