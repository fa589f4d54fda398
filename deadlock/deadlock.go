// Package deadlock finds cycles of waits among nodes, without I/O, by the machines of
// Chandy, Misra and Haas: [NewAnd] where a node waits for all of several others, [NewOr]
// where it waits for any one of them.
//
// Chandy, Misra and Haas, "Distributed Deadlock Detection", ACM TOCS 1(2), 1983.
//
// The machines follow the paper, including its assumptions. Transactions that take locks
// need none of this: package node detects their deadlocks by a probe that uses the locks.
//
// # The model of Chandy, Misra and Haas
//
// A node is active, or blocked: it has sent requests to some others and waits. In the AND
// model (the paper's resource model) it waits until all of them have granted, in the OR
// model (the communication model) until any one has. A blocked node grants nothing. So a
// set of nodes may wait forever: in the AND model the nodes on a cycle of waits, in the OR
// model nodes whose dependencies are all, transitively, blocked. No node sees more than
// its own waits; messages that follow the waits find the deadlock.
//
// # Driving a machine
//
// The requests and grants are the application's. It sends requests and calls Wait. It
// calls Granted when a grant of the present wait arrives, but not for a grant of an
// earlier wait. The AND model also needs the other side: Asked when a request arrives,
// Settled when it is granted. When a wait seems long, the application calls Detect, and sends
// what that returns. That finds a deadlock that includes this node, if it is complete by
// then. So every deadlock is found if each node calls Detect once in each wait.
//
// The messages must go over the same channels as the requests and the grants, and
// these must keep the order. Otherwise a probe that overtakes the request whose wait it
// follows is dropped, and a deadlock is missed; or a reply overtakes a grant, and a
// deadlock is declared that does not exist.
//
// What does not fit, such as a grant that is not awaited, or a node that is no other member,
// is refused with [dmutex.ErrMisuse].
//
// Where waits are never withdrawn, every declaration is true. Otherwise it is only a hint:
// a wait may be withdrawn while the last probe comes back. Look again before acting on it.
package deadlock

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// Kind says what a [Message] is, by the number on the wire, whose meaning never changes.
type Kind uint8

// The kinds of messages, by the names that the paper gives them.
const (
	Probe Kind = iota + 1 // AND: the initiator waits, perhaps through others, for the receiver
	Query                 // OR: does the receiver wait forever?
	Reply                 // OR: the sender may wait forever
)

// String returns the kind as the paper writes it: PROBE, QUERY or REPLY.
func (k Kind) String() string {
	return canon.Kind(k, "PROBE", "QUERY", "REPLY")
}

// A Message is what one machine sends to another. It is plain data.
type Message struct {
	Kind      Kind
	From, To  dmutex.NodeID
	Initiator dmutex.NodeID // the node that began the computation
	Number    uint64        // which of its computations, counted from 1
}

// String returns the message as golden files write it, such as
// "2->3 PROBE 1#4" for the initiator's fourth computation.
func (m Message) String() string {
	b := canon.Way(nil, m.From, m.To, m.Kind.String())
	b = strconv.AppendUint(append(b, ' '), uint64(m.Initiator), 10)
	return string(strconv.AppendUint(append(b, '#'), m.Number, 10))
}

// A Machine is one node of a group, in either model. It is not safe for concurrent use.
type Machine struct {
	model   string // and, or
	rules   func(*Machine) rules
	members []dmutex.NodeID // ascending; never written after birth: clones share it
	me      int             // our rank in it

	waits      []bool // by rank: the nodes that we wait for; never written: clones share it
	blocked    int    // how many there are
	wait       uint64 // the number of the last wait
	seq        uint64 // the number of our last computation
	since      uint64 // seq when the last wait began
	deadlocked bool
	asked      []bool // by rank: its request to us is pending

	seen         []uint64      // AND, by initiator: the last computation that we have passed on
	computations []computation // OR, by initiator

	out []Message
}

// The rules are what differs between the models. They have no state but the machine.
type rules interface {
	granted(j int)                                          // a grant that is awaited has come
	compute()                                               // begins our computation seq
	handle(from, initiator int, m Message) (mistake string) // or why no peer sends it
}

// No correct node reaches this number.
const lastNumber = 1 << 62

func newMachine(model string, self dmutex.NodeID, members []dmutex.NodeID, r func(*Machine) rules) (*Machine, error) {
	members, me, err := canon.Members("", members, self)
	if err != nil {
		return nil, dmutex.Misuse("deadlock: " + err.Error())
	}
	n := len(members)
	return &Machine{model: model, rules: r, members: members, me: me, waits: make([]bool, n), asked: make([]bool, n)}, nil
}

// Clone returns an independent copy.
func (m *Machine) Clone() *Machine {
	c := *m
	c.asked, c.seen, c.computations = slices.Clone(m.asked), slices.Clone(m.seen), slices.Clone(m.computations)
	return &c
}

// Deadlocked reports whether the present wait was found to be in a deadlock.
func (m *Machine) Deadlocked() bool { return m.deadlocked }

// Wait reports that this node has sent requests to others, each named once, and is blocked
// until all have granted (AND), or one has (OR).
func (m *Machine) Wait(on []dmutex.NodeID) error {
	switch {
	case m.blocked > 0:
		return dmutex.Misuse("deadlock: Wait while blocked: one wait at a time")
	case len(on) == 0:
		return dmutex.Misuse("deadlock: Wait for no node")
	}
	waits := make([]bool, len(m.members))
	for _, node := range on {
		j, err := m.other(node)
		switch {
		case err != nil:
			return err
		case waits[j]:
			return dmutex.Misuse("deadlock: Wait for node " + node.String() + " twice")
		}
		waits[j] = true
	}
	m.waits, m.blocked, m.since = waits, len(on), m.seq
	m.wait++
	return nil
}

// Granted reports that a grant has arrived. In the AND model the last one makes this node active,
// in the OR model any one.
func (m *Machine) Granted(by dmutex.NodeID) error {
	j, err := m.other(by)
	switch {
	case err != nil:
		return err
	case !m.waits[j]:
		return dmutex.Misuse("deadlock: nothing is awaited of node " + by.String())
	}
	m.rules(m).granted(j)
	return nil
}

func (m *Machine) unblock() {
	m.waits, m.blocked, m.deadlocked = make([]bool, len(m.members)), 0, false
}

// Withdraw reports that this node no longer waits, although it lacks grants.
func (m *Machine) Withdraw() error {
	if m.blocked == 0 {
		return dmutex.Misuse("deadlock: Withdraw while active")
	}
	m.unblock()
	return nil
}

// Asked reports that a request has arrived, which is now pending: one of a node at a time. Only
// the AND model needs to know.
func (m *Machine) Asked(by dmutex.NodeID) error { return m.pend(by, true, "a") }

// Settled reports that a request is no longer pending: this node has sent the grant, or
// the other node has withdrawn.
func (m *Machine) Settled(with dmutex.NodeID) error { return m.pend(with, false, "no") }

func (m *Machine) pend(node dmutex.NodeID, pending bool, already string) error {
	j, err := m.other(node)
	switch {
	case err != nil:
		return err
	case m.asked[j] == pending:
		return dmutex.Misuse("deadlock: " + already + " request of node " + node.String() + " is pending")
	}
	m.asked[j] = pending
	return nil
}

// Detect begins a computation of a blocked node, and returns what to send. In the OR model
// a second one in the same wait abandons the first, so give that time to end.
func (m *Machine) Detect() ([]Message, error) {
	switch {
	case m.blocked == 0:
		return nil, dmutex.Misuse("deadlock: Detect while active")
	case m.seq >= lastNumber:
		return nil, dmutex.Misuse("deadlock: the numbers of computations are used up: begin a new group")
	}
	m.out = nil
	m.seq++
	m.rules(m).compute()
	return m.out, nil
}

// Handle takes a message from a peer, and returns what to send: call Deadlocked after it.
// The error is [dmutex.ErrPeer] for a message that no correct peer sends.
func (m *Machine) Handle(msg Message) ([]Message, error) {
	from, initiator, mistake := m.check(msg)
	if mistake == "" {
		m.out = nil
		mistake = m.rules(m).handle(from, initiator, msg)
	}
	if mistake != "" {
		return nil, dmutex.PeerMistake(msg.String() + ": " + mistake)
	}
	return m.out, nil
}

// other returns the rank of another member, for a caller that names one.
func (m *Machine) other(node dmutex.NodeID) (int, error) {
	j, member := slices.BinarySearch(m.members, node)
	if !member || j == m.me {
		return 0, dmutex.Misuse("deadlock: node " + node.String() + " is not another member of the group")
	}
	return j, nil
}

// check returns the ranks of sender and initiator, or why no peer sends this to this node.
func (m *Machine) check(msg Message) (from, initiator int, mistake string) {
	from, member := slices.BinarySearch(m.members, msg.From)
	initiator, known := slices.BinarySearch(m.members, msg.Initiator)
	switch {
	case msg.To != m.members[m.me]:
		mistake = "it is not for node " + m.members[m.me].String()
	case !member || from == m.me:
		mistake = "the sender is not a peer"
	case !known:
		mistake = "the initiator is not a member"
	case msg.Number == 0 || msg.Number > lastNumber:
		mistake = "its number is 0 or beyond 1<<62"
	case initiator == m.me && msg.Number > m.seq:
		mistake = "this computation was never begun"
	}
	return from, initiator, mistake
}

// ask sends a message about a computation to every node that we wait for.
func (m *Machine) ask(kind Kind, initiator int, number uint64) {
	for j, waits := range m.waits {
		if waits {
			m.send(kind, j, initiator, number)
		}
	}
}

func (m *Machine) send(kind Kind, to, initiator int, number uint64) {
	m.out = append(m.out, Message{
		Kind: kind, From: m.members[m.me], To: m.members[to],
		Initiator: m.members[initiator], Number: number,
	})
}

// AppendText appends the canonical state: machines of one model with equal text behave alike
// forever. The error is always nil.
func (m *Machine) AppendText(b []byte) ([]byte, error) {
	b = append(append(b, m.model...), ' ')
	b = strconv.AppendUint(b, uint64(m.members[m.me]), 10)
	b = strconv.AppendUint(append(b, " seq="...), m.seq, 10)
	b = canon.Flag(b, " deadlocked", m.deadlocked)
	b = canon.Set(b, " waits for ", m.members, m.waits)
	if m.seen != nil && m.blocked > 0 {
		b = m.appendNumber(b, " since ", m.me, m.since)
	}
	b = canon.Set(b, " asked by ", m.members, m.asked)
	for i, number := range m.seen {
		if number > 0 {
			b = m.appendNumber(b, " seen ", i, number)
		}
	}
	for i := range m.computations {
		switch c := &m.computations[i]; {
		case m.engaged(c):
			b = m.appendNumber(b, " engaged in ", i, c.latest)
			b = strconv.AppendUint(append(b, " by "...), uint64(m.members[c.engager]), 10)
			b = strconv.AppendUint(append(b, " num="...), uint64(c.num), 10)
		case c.latest > 0:
			b = m.appendNumber(b, " met ", i, c.latest)
		}
	}
	return b, nil
}

// appendNumber appends a computation, such as " seen 1#4".
func (m *Machine) appendNumber(b []byte, name string, initiator int, number uint64) []byte {
	b = strconv.AppendUint(append(b, name...), uint64(m.members[initiator]), 10)
	return strconv.AppendUint(append(b, '#'), number, 10)
}
