// Package election chooses a leader among the nodes of a group: the bully, the
// ring, and the algorithm of Chang and Roberts, as machines that do no I/O.
//
// # Which one
//
// Of n nodes, all alive unless told otherwise; a delay is that of a message.
//
//   - [Bully]: n-1 messages and one delay if the highest runs. If that has
//     crashed, n messages if the next to it runs, and up to n²-n if the lowest
//     does and all run after it. It waits for a timeout where nobody answers.
//     Take it if the group is small and the leader is to be found quickly.
//   - [Ring]: 2n messages and 2n delays, whoever runs; at most n²+n messages if
//     all run at once. Take it if the cost is to be the same whatever the order
//     of the ring. Its messages carry the names of all.
//   - [ChangRoberts]: 2n to 3n-1 messages, and as many delays, if one runs. If
//     all run at once, n + n(1 + 1/2 + ... + 1/n) messages on the average over
//     all orders of the ring, and n + n(n+1)/2 at worst. Take it if the group is
//     large or many run at once. Its messages are short.
//
// # The rule of the epochs
//
// Every announcement of a leader has a number, the epoch, and an epoch has only
// one possible leader: in a group of N nodes the leader of epoch e is the
// member with rank e mod N, ranks counted from 0 in ascending order. So epochs
// compare as (term, leader) would, no two nodes can ever lead in the same one,
// and it does not matter from whom one hears of an epoch. A node keeps the
// highest that it knows; an older announcement is ignored, or answered with the
// newer.
//
// An election has a number of the same sort, its ballot, which belongs to the
// node that runs. It is higher than any number that the node has met, and
// who meets it remembers it: so the epoch that comes of it is new.
//
// # What is promised
//
// On an asynchronous network no election makes a leader of whom everybody knows
// at every instant. Never guard a resource by "I am the leader" alone: hand it
// the epoch, and let it refuse one that is lower than it has seen. What holds:
//
//   - At most one node leads in an epoch, whatever is suspected, lost or
//     forgotten. It does so once, unless it crashes and forgets. At each node
//     epochs only rise.
//   - Once failures stop, and suspicions are right, all live nodes that reach
//     each other have the same leader in the same epoch: the highest of them.
//     For as long as some suspicion is wrong, elections may repeat.
//
// That allows two leaders at a time, of different epochs: one on each side of a
// partition, for as long as it lasts; and while an announcement is on its way.
//
// # The majority rule
//
// With [Config.Majority] a node is announced only after a majority of all
// members has let it run, and each of them has first ceased to lead. And a node
// that suspects so many that the rest is no majority neither leads nor follows
// nor runs, until it is told better. Then, in addition:
//
//   - When both sides of a partition have noticed it, at most one side has a
//     leader: that with the majority. If none has it, there is no leader.
//   - There are never two leaders at the same instant, if suspicion is prompt
//     and simultaneous: if all nodes are told of a crash or a partition before
//     anything else happens to any of them; and if a crashed node comes back no
//     sooner than its last election has died out. It is not enough that each node
//     is told before anything else happens to that node: the side that is told
//     first may elect a leader while the other side's leader still leads.
//
// Real suspicion is not like that. A leader that is cut off leads on in its
// old epoch until it suspects enough of the others, and meanwhile they may have
// elected another, in a higher epoch. That interval is all that is left to the
// epoch and to whoever checks it.
//
// # What is assumed
//
// The members are fixed. A channel keeps the order of its messages and does not
// repeat them. It loses only those to a node that crashes or is cut off. Who is
// cut off is suspected, on both sides, before it is reached again. Who crashes
// need not be: when it is back, it begins with a new [Machine] and Start. What
// it knew is handed over in [Config.Epoch]; if it has forgotten, it learns from
// the others.
//
// A timeout that fires too early, like a suspicion that is wrong, costs
// elections but breaks nothing that is promised without prompt suspicion.
package election

import (
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
)

// Config is what a machine is told at its birth.
type Config struct {
	Self    dmutex.NodeID
	Members []dmutex.NodeID // all members, Self among them, no duplicates; for the rings all nodes give the same order
	Epoch   uint64          // highest epoch that this node knew before, 0 in a fresh group

	// Majority asks for the majority rule. All members must say the same.
	Majority bool

	// Answer is the papers' first timeout, in ticks: who has not answered by
	// then is taken for dead. It should exceed the time for a message and its
	// answer. Only [Bully] waits for answers.
	Answer int

	// Outcome is the second timeout, in ticks: if nobody has been announced by
	// then, the election begins anew. It should exceed the time for a whole
	// election: for Bully Answer and three messages, for the rings three times
	// around.
	Outcome int
}

// A Machine is one node's part in the elections of its group: a deterministic
// state machine that does no I/O, starts no goroutine, reads no clock and draws
// no random number. It is not safe for concurrent use.
//
// Each call returns the messages to send, in order. The slice belongs to the
// machine and is overwritten by the next call. A call that returns an error has
// changed nothing: [dmutex.ErrMisuse] if the caller is wrong, [dmutex.ErrPeer]
// if the sender of a message is. A late or outdated message is no error.
//
// The machines of this package also have AppendText, for the canonical state
// (machines of one Config and of equal text behave alike for ever), Clone, and
// TicksLeft: the ticks until a timeout, 0 if none runs and Tick does nothing
// before the next other input.
type Machine interface {
	// Start begins an election, unless one is under way here, or under the
	// majority rule this node reaches no majority. A node calls it when it
	// joins, first or again, and whenever it likes.
	Start() []Message

	// Handle takes a message from a peer.
	Handle(m Message) ([]Message, error)

	// Tick tells that the driver's unit of time has passed.
	Tick() []Message

	// Suspect tells that a member seems to have crashed or to be cut off, and
	// Unsuspect that it is back or never was. To say it twice does nothing.
	// They refuse this node itself and strangers with dmutex.ErrMisuse.
	Suspect(node dmutex.NodeID) ([]Message, error)
	Unsuspect(node dmutex.NodeID) ([]Message, error)

	// Leader returns the leader, None if this node knows of none at present;
	// and the highest epoch that was announced to it, 0 if none ever was.
	Leader() (node dmutex.NodeID, epoch uint64)
}

// An Algorithm makes the machine of one node. It refuses a Config that is not
// lawful with [dmutex.ErrMisuse].
type Algorithm func(Config) (Machine, error)

// Kind says what a [Message] is. The numbers are those of the wire and keep
// their meaning for ever.
type Kind uint8

// The kinds of messages. Chang and Roberts say ELECTED for COORDINATOR, others
// OK for ANSWER. AGREE belongs to the majority rule.
const (
	Election    Kind = iota + 1 // somebody runs
	Answer                      // a higher node is alive and takes over
	Agree                       // a node lets the sender of ELECTION run
	Coordinator                 // somebody leads
)

// String returns the kind as the papers write it: ELECTION, ANSWER and so on.
func (k Kind) String() string {
	switch k {
	case Election:
		return "ELECTION"
	case Answer:
		return "ANSWER"
	case Agree:
		return "AGREE"
	case Coordinator:
		return "COORDINATOR"
	default:
		return "KIND" + strconv.Itoa(int(k))
	}
}

// A Message is what one machine says to another. It is plain data; a field that
// its Kind or the algorithm does not use is zero.
type Message struct {
	Kind     Kind
	From, To dmutex.NodeID

	Ballot uint64 // of the election; ANSWER and AGREE: the highest that the sender has met
	Epoch  uint64 // COORDINATOR: it names the leader; Chang-Roberts' ELECTION: the highest number that it has met
	Passed uint64 // Chang-Roberts' ELECTION: how many nodes it has passed

	// Nodes are those that the ring's ELECTION has passed. The list belongs to
	// the sending machine: who keeps a message clones it.
	Nodes []dmutex.NodeID
}

// Clone returns a copy that shares nothing.
func (m Message) Clone() Message {
	m.Nodes = slices.Clone(m.Nodes)
	return m
}

// String returns the message as golden files write it, such as
// "1->2 ELECTION ballot=3". Fields that are zero are left out.
func (m Message) String() string {
	b := strconv.AppendUint(nil, uint64(m.From), 10)
	b = append(b, "->"...)
	b = strconv.AppendUint(b, uint64(m.To), 10)
	b = append(b, ' ')
	b = append(b, m.Kind.String()...)
	b = appendField(b, " ballot=", m.Ballot)
	b = appendField(b, " epoch=", m.Epoch)
	b = appendField(b, " passed=", m.Passed)
	for i, node := range m.Nodes {
		if i == 0 {
			b = append(b, " nodes="...)
		} else {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(node), 10)
	}
	return string(b)
}

func appendField(b []byte, name string, v uint64) []byte {
	if v == 0 {
		return b
	}
	return strconv.AppendUint(append(b, name...), v, 10)
}
