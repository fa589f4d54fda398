// Package deadlock finds cycles of waits among nodes, without I/O, by the machines of
// Chandy, Misra and Haas: [And] where a node waits for all of several others, [Or] where
// it waits for any one of them.
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
// earlier wait. And also needs the other side: Asked when a request arrives, Settled
// when it is granted. When a wait seems long, the application calls Detect, and sends
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

// A site is what both machines have in common: the members, the wait, and the output.
type site struct {
	model
	members []dmutex.NodeID // ascending; never written after birth: clones share it
	me      int             // our rank in it

	waits      []bool // by rank: the nodes that we wait for; never written: clones share it
	blocked    int    // how many there are
	wait       uint64 // the number of the last wait
	seq        uint64 // the number of our last computation
	since      uint64 // seq when the last wait began
	deadlocked bool
	out        []Message
}

// A model is what differs between And and Or.
type model interface {
	compute()                                               // begins our computation seq
	handle(from, initiator int, m Message) (mistake string) // or why no peer sends it
}

// No correct node reaches this number.
const lastNumber = 1 << 62

func newSite(self dmutex.NodeID, members []dmutex.NodeID) (site, error) {
	members, me, err := canon.Members("", members, self)
	if err != nil {
		return site{}, dmutex.Misuse("deadlock: " + err.Error())
	}
	return site{members: members, me: me, waits: make([]bool, len(members))}, nil
}

// Deadlocked reports whether the present wait was found to be in a deadlock.
func (s *site) Deadlocked() bool { return s.deadlocked }

// Wait reports that this node has sent requests to others, each named once, and is blocked
// until all have granted (And), or one has (Or).
func (s *site) Wait(on []dmutex.NodeID) error {
	switch {
	case s.blocked > 0:
		return dmutex.Misuse("deadlock: Wait while blocked: one wait at a time")
	case len(on) == 0:
		return dmutex.Misuse("deadlock: Wait for no node")
	}
	waits := make([]bool, len(s.members))
	for _, node := range on {
		j, err := s.other(node)
		switch {
		case err != nil:
			return err
		case waits[j]:
			return dmutex.Misuse("deadlock: Wait for node " + node.String() + " twice")
		}
		waits[j] = true
	}
	s.waits, s.blocked, s.since = waits, len(on), s.seq
	s.wait++
	return nil
}

// awaited returns the rank of a node that we wait for.
func (s *site) awaited(node dmutex.NodeID) (int, error) {
	j, err := s.other(node)
	if err == nil && !s.waits[j] {
		err = dmutex.Misuse("deadlock: nothing is awaited of node " + node.String())
	}
	return j, err
}

func (s *site) unblock() {
	s.waits, s.blocked, s.deadlocked = make([]bool, len(s.members)), 0, false
}

// Withdraw reports that this node no longer waits, although it lacks grants.
func (s *site) Withdraw() error {
	if s.blocked == 0 {
		return dmutex.Misuse("deadlock: Withdraw while active")
	}
	s.unblock()
	return nil
}

// Detect begins a computation of a blocked node, and returns what to send. In the OR model
// a second one in the same wait abandons the first, so give that time to end.
func (s *site) Detect() ([]Message, error) {
	switch {
	case s.blocked == 0:
		return nil, dmutex.Misuse("deadlock: Detect while active")
	case s.seq >= lastNumber:
		return nil, dmutex.Misuse("deadlock: the numbers of computations are used up: begin a new group")
	}
	s.out = nil
	s.seq++
	s.compute()
	return s.out, nil
}

// Handle takes a message from a peer, and returns what to send: call Deadlocked after it.
// The error is [dmutex.ErrPeer] for a message that no correct peer sends.
func (s *site) Handle(m Message) ([]Message, error) {
	from, initiator, mistake := s.check(m)
	if mistake == "" {
		s.out = nil
		mistake = s.handle(from, initiator, m)
	}
	if mistake != "" {
		return nil, dmutex.PeerMistake(m.String() + ": " + mistake)
	}
	return s.out, nil
}

// other returns the rank of another member, for a caller that names one.
func (s *site) other(node dmutex.NodeID) (int, error) {
	j, member := slices.BinarySearch(s.members, node)
	if !member || j == s.me {
		return 0, dmutex.Misuse("deadlock: node " + node.String() + " is not another member of the group")
	}
	return j, nil
}

// check returns the ranks of sender and initiator, or why no peer sends this to this node.
func (s *site) check(m Message) (from, initiator int, mistake string) {
	from, member := slices.BinarySearch(s.members, m.From)
	initiator, known := slices.BinarySearch(s.members, m.Initiator)
	switch {
	case m.To != s.members[s.me]:
		mistake = "it is not for node " + s.members[s.me].String()
	case !member || from == s.me:
		mistake = "the sender is not a peer"
	case !known:
		mistake = "the initiator is not a member"
	case m.Number == 0 || m.Number > lastNumber:
		mistake = "its number is 0 or beyond 1<<62"
	case initiator == s.me && m.Number > s.seq:
		mistake = "this computation was never begun"
	}
	return from, initiator, mistake
}

// ask sends a message about a computation to every node that we wait for.
func (s *site) ask(kind Kind, initiator int, number uint64) {
	for j, waits := range s.waits {
		if waits {
			s.send(kind, j, initiator, number)
		}
	}
}

func (s *site) send(kind Kind, to, initiator int, number uint64) {
	s.out = append(s.out, Message{
		Kind: kind, From: s.members[s.me], To: s.members[to],
		Initiator: s.members[initiator], Number: number,
	})
}

func (s *site) appendText(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(s.members[s.me]), 10)
	b = strconv.AppendUint(append(b, " seq="...), s.seq, 10)
	b = canon.Flag(b, " deadlocked", s.deadlocked)
	return canon.Set(b, " waits for ", s.members, s.waits)
}

// appendNumber appends a computation, such as " seen 1#4".
func (s *site) appendNumber(b []byte, name string, initiator int, number uint64) []byte {
	b = strconv.AppendUint(append(b, name...), uint64(s.members[initiator]), 10)
	return strconv.AppendUint(append(b, '#'), number, 10)
}
