// Package election chooses a leader among the nodes of a group: the bully, the
// ring, and the algorithm of Chang and Roberts, as machines that do no I/O.
//
// It allows two leaders at a time, in different epochs: one on each side of a partition, as
// long as it lasts, or while an announcement is in flight. If that does harm, use an
// Election of package node, which is built on a lock.
//
// # Which one
//
// A node that begins an election runs. Each algorithm says what that costs among n nodes.
//
//   - [Bully], if the group is small and a leader is needed quickly: n-1 messages and the
//     delay of one if the highest node runs, up to n²-n if that has crashed.
//   - [Ring], if the cost must not depend on the order of the ring: 2n messages, one after
//     another, whichever node runs. They carry the names of all nodes.
//   - [ChangRoberts], if the group is large or many nodes run at once: 2n to 3n-1 short
//     messages, one after another, if one node runs.
//
// # The rule of the epochs
//
// Every announcement of a leader has a number, the epoch. In a group of N nodes the
// leader of epoch e is the member with rank e mod N, ranks counted from 0 in ascending
// order. So epochs compare as (term, leader) would, no two nodes can ever lead in the same
// one, and any node may pass on an epoch. A node keeps the highest epoch that it knows, and
// ignores an older announcement or answers it with the newer one.
//
// An election has a number of the same kind, its ballot, which belongs to the node that
// runs. It is higher than any number that the node has met, and every node that meets it
// remembers it. So the epoch that results from it is new.
//
// # What is promised
//
// Never guard a resource by "I am the leader" alone: send it the epoch, and let it refuse
// an epoch lower than one it has seen. These promises hold:
//
//   - At most one node leads in an epoch, whatever is suspected, lost or
//     forgotten. It leads in that epoch only once, unless it crashes and
//     forgets. At each node epochs only rise.
//   - Once failures stop, and suspicions are right, all live nodes that reach
//     each other have the same leader in the same epoch: the highest of them.
//     As long as some suspicion is wrong, elections may repeat.
//
// # The majority rule
//
// With [Config.Majority] a node is announced only after a majority of all members has let
// it run, and each of these has first ceased to lead. A node that suspects so many members
// that the rest is no majority does not lead, follow or run. Then, in addition:
//
//   - When both sides of a partition have noticed it, at most one side has a
//     leader: the side with the majority. If neither has it, there is no leader.
//   - There are never two leaders at the same instant, if all nodes learn of a crash or a
//     partition before anything else happens to any of them, and if a crashed node comes
//     back no sooner than its last election has died out.
//
// Real suspicion is neither prompt nor simultaneous: a leader that is cut off leads in its
// old epoch until it suspects enough of the others, which may have elected another by then.
//
// # What is assumed
//
// The members are fixed. A channel keeps the order of its messages and does not repeat
// them. It loses only messages to a node that crashes or is cut off. A node that is cut off
// is suspected, on both sides, before it is reached again. A node that crashes need not be
// suspected: when it is back, it begins with a new [Machine] and Start. [Config.Epoch]
// restores what it knew; a node that has forgotten learns it from the others.
//
// A timeout that fires too early, like a wrong suspicion, costs elections. It breaks
// only promises that need prompt suspicion.
package election

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
)

// Config configures a machine.
type Config struct {
	Self    dmutex.NodeID
	Members []dmutex.NodeID // all members, Self among them, no duplicates; for the rings all nodes give the same order
	Epoch   uint64          // highest epoch that this node knew before, 0 in a fresh group

	// Majority turns on the majority rule. It must be the same in all members.
	Majority bool

	// Answer is the papers' first timeout, in ticks: a node that has not answered
	// by then is presumed dead. It should exceed the time for a message and its
	// answer. Only [Bully] waits for answers.
	Answer int

	// Outcome is the second timeout, in ticks: if no leader has been announced by then, the
	// election begins again. It should exceed the time for a whole election: Answer and
	// three messages for Bully, three times around for the rings.
	Outcome int
}

// A Machine is one node's part in the elections of its group: a deterministic state
// machine. It is not safe for concurrent use.
//
// Each call returns the messages to send, in order. A call that returns an error has
// changed nothing: [dmutex.ErrMisuse] if the caller is wrong, [dmutex.ErrPeer]
// if the sender of a message is. A late or outdated message is not an error.
type Machine interface {
	// Start begins an election, unless this node is in one already, or reaches no
	// majority under the majority rule. Call it when the node joins, for the first
	// time or again, and at any other time.
	Start() []Message

	// Handle takes a message from a peer.
	Handle(m Message) ([]Message, error)

	// Tick reports that the driver's unit of time has passed.
	Tick() []Message

	// Suspect reports that a member seems to have crashed or to be cut off, and
	// Unsuspect that it is back or was never gone. A repeated call does nothing.
	// They refuse this node itself and nonmembers with dmutex.ErrMisuse.
	Suspect(node dmutex.NodeID) ([]Message, error)
	Unsuspect(node dmutex.NodeID) ([]Message, error)

	// Leader returns the leader, or None if this node knows of none at present,
	// and the highest epoch that was announced to it, or 0 if none was.
	Leader() (node dmutex.NodeID, epoch uint64)

	// TicksLeft returns the ticks until a timeout, or 0 if none runs.
	TicksLeft() int

	// AppendText appends the canonical state: machines with one Config and equal text
	// behave alike forever. The error is always nil.
	AppendText(b []byte) ([]byte, error)

	// Clone returns an independent copy.
	Clone() Machine
}

// An Algorithm makes the machine of one node. It returns [dmutex.ErrMisuse]
// for a Config that is not valid.
type Algorithm func(Config) (Machine, error)

// Kind says what a [Message] is, by the number on the wire, whose meaning never changes.
type Kind uint8

// The kinds of messages. Chang and Roberts say ELECTED for COORDINATOR, others
// OK for ANSWER. AGREE belongs to the majority rule.
const (
	Election    Kind = iota + 1 // a node runs
	Answer                      // a higher node is alive and takes over
	Agree                       // a node lets the sender of ELECTION run
	Coordinator                 // a node leads
)

// String returns the kind as the papers write it: ELECTION, ANSWER and so on.
func (k Kind) String() string {
	return canon.Kind(k, "ELECTION", "ANSWER", "AGREE", "COORDINATOR")
}

// A Message is what one machine sends to another. It is plain data; a field
// that its Kind or the algorithm does not use is zero.
type Message struct {
	Kind     Kind
	From, To dmutex.NodeID

	Ballot uint64          // of the election; ANSWER and AGREE: the highest that the sender has met
	Epoch  uint64          // COORDINATOR: it names the leader; Chang-Roberts' ELECTION: the highest number that it has met
	Passed uint64          // Chang-Roberts' ELECTION: how many nodes it has passed
	Nodes  []dmutex.NodeID // the ring's ELECTION: those that it has passed; must not be written to
}

// String returns the message as golden files write it, such as
// "1->2 ELECTION ballot=3". Fields that are zero are left out.
func (m Message) String() string {
	b := canon.Way(nil, m.From, m.To, m.Kind.String())
	b = canon.Number(b, " ballot=", m.Ballot)
	b = canon.Number(b, " epoch=", m.Epoch)
	b = canon.Number(b, " passed=", m.Passed)
	return string(canon.List(b, " nodes=", m.Nodes))
}
