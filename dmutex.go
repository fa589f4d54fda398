package dmutex

import (
	"cmp"
	"errors"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/mistake"
)

// NodeID names one node (the papers say site or process) of a group.
//
// The application chooses it, never changes it, and never gives it to another
// node. Its order breaks ties between requests of the same time.
type NodeID uint64

// None is the zero NodeID. It names no node.
const None NodeID = 0

// String returns the number in decimal.
func (id NodeID) String() string { return strconv.FormatUint(uint64(id), 10) }

// A Stamp identifies a request, as in Lamport's paper: by the logical time at
// which it was made and the node that made it. No two requests of a group
// have the same Stamp.
//
// Lamport, "Time, Clocks, and the Ordering of Events in a Distributed System",
// CACM 21(7), 1978.
type Stamp struct {
	Clock uint64
	Node  NodeID
}

// Compare orders stamps by time, and stamps of equal time by node. It returns
// -1 if s comes first, 1 if t does, and 0 if they are the same request.
func (s Stamp) Compare(t Stamp) int {
	return cmp.Or(cmp.Compare(s.Clock, t.Clock), cmp.Compare(s.Node, t.Node))
}

// Less reports whether s comes before t, and so has the higher priority.
func (s Stamp) Less(t Stamp) bool { return s.Compare(t) < 0 }

// String returns the stamp as machines write it: 2@7 is the request that node 2
// made at time 7.
func (s Stamp) String() string { return string(s.AppendTo(nil)) }

// AppendTo appends what [Stamp.String] returns.
func (s Stamp) AppendTo(b []byte) []byte {
	b = strconv.AppendUint(b, uint64(s.Node), 10)
	return strconv.AppendUint(append(b, '@'), s.Clock, 10)
}

// Kind says what a [Message] is. Kinds are encoded on the wire by their
// numbers, which never change their meaning.
type Kind uint8

// The kinds of messages, by the names that the papers give them.
const (
	Request Kind = iota + 1 // the sender asks to enter
	Reply                   // the sender agrees
	Grant                   // the coordinator lets the receiver in
	Release                 // the sender has left
	Failed                  // an arbiter has voted for, or queues, a request that goes before the receiver's
	Inquire                 // an arbiter asks for its vote back
	Yield                   // the sender gives the vote back
	Token                   // the privilege itself
	Share                   // the sender asks to enter together with others that share

	kinds // one past the last
)

// Kinds is one more than the largest Kind: the length of a table indexed by Kind.
const Kinds = int(kinds)

// String returns the kind as the papers write it: REQUEST, REPLY and so on.
func (k Kind) String() string {
	return canon.Kind(k, "REQUEST", "REPLY", "GRANT", "RELEASE", "FAILED", "INQUIRE", "YIELD", "TOKEN", "SHARE")
}

// A Message is what one machine sends to another about one lock. It is plain
// data; a field that its Kind does not use is zero.
type Message struct {
	Kind Kind   `json:"kind"`
	From NodeID `json:"from,omitempty"`
	To   NodeID `json:"to,omitempty"`

	// Attempt names the request that the message is about, by the number that
	// the requester gave it. Each request of a node has a higher number than
	// the last, so an answer to an earlier request never counts for a later
	// one. If the algorithm has logical clocks, Attempt is the request's
	// time: Attempt and requester together are the request's [Stamp].
	Attempt uint64 `json:"attempt,omitempty"`

	// Clock is the sender's logical time, if the algorithm needs it in
	// addition to Attempt.
	Clock uint64 `json:"clock,omitempty"`

	// Fence is the highest fence that the sender knows; see package site.
	Fence uint64 `json:"fence,omitempty"`

	// Numbers and Nodes are the lists that a token carries; each algorithm
	// says what they are. Like the output that the message is part of, they
	// belong to the sending machine: clone a message to keep it.
	Numbers []uint64 `json:"numbers,omitempty"`
	Nodes   []NodeID `json:"nodes,omitempty"`
}

// Clone returns a copy that shares nothing.
func (m Message) Clone() Message {
	m.Numbers = slices.Clone(m.Numbers)
	m.Nodes = slices.Clone(m.Nodes)
	return m
}

// String returns the message as golden scripts write it, such as
// "1->2 REQUEST attempt=5 fence=2". Fields that are zero are left out.
func (m Message) String() string {
	b, _ := m.AppendText(nil)
	return string(b)
}

// AppendText appends what [Message.String] returns. The error is always nil.
func (m Message) AppendText(b []byte) ([]byte, error) {
	b = canon.Way(b, m.From, m.To, m.Kind.String())
	b = canon.Number(b, " attempt=", m.Attempt)
	b = canon.Number(b, " clock=", m.Clock)
	b = canon.Number(b, " fence=", m.Fence)
	b = canon.List(b, " numbers=", m.Numbers)
	return canon.List(b, " nodes=", m.Nodes), nil
}

// Phase is the state of one lock at one node: Idle, then Waiting, then Held,
// then Idle again.
type Phase uint8

// The phases.
const (
	Idle    Phase = iota // not asking; a request that was canceled counts as Idle
	Waiting              // asked, not yet granted
	Held                 // in the critical section
)

// String returns idle, waiting or held.
func (p Phase) String() string {
	if names := [...]string{"idle", "waiting", "held"}; int(p) < len(names) {
		return names[p]
	}
	return "phase " + strconv.Itoa(int(p))
}

// Start is what a machine is made from.
type Start struct {
	Self    NodeID
	Members []NodeID // all voting members in any order, Self among them, no duplicates

	// Holder is the node that holds the lock as this group begins, and None if it
	// is free. The holder's machine starts Held, with Fence as its fence. The
	// driver keeps the fence that the caller was given: it is not above Fence,
	// and so lower than that of the next grant.
	Holder NodeID

	// Sharers are the nodes that share the lock as this group begins; then there is no Holder.
	// Their machines start Held, as that of a Holder. Only a [Sharer] takes them.
	Sharers []NodeID

	// Home is the member at which the lock begins, as its coordinator or with its token,
	// if the algorithm has either. None means the member with the lowest number. All
	// members of a group have the same.
	Home NodeID

	// Fence is the highest fence that was granted before this group, and Limit
	// the last that this group may grant; if Limit is 0, there is no limit. All
	// members of a group have the same.
	Fence, Limit uint64

	// Clock is the highest logical time that this node has used or seen in this
	// group, at most 1<<62, and Known the highest fence, as [Machine.Forget]
	// returned them. Both are 0 when the group begins.
	Clock, Known uint64

	// Sibling is another machine of this node, of the same group and algorithm. The
	// new machine shares memory with it: the next input to either overwrites what the
	// last call returned. So both get their inputs one at a time. Nil shares nothing.
	Sibling Machine
}

// A Machine is one lock at one node: a deterministic state machine that does
// no I/O, starts no goroutine, reads no clock and draws no random number.
// It is not safe for concurrent use.
//
// Local inputs are methods; messages are only what crosses the wire. Each call
// returns the messages to send, in order, in a slice that the next call overwrites.
//
// A call that returns an error has changed nothing: [ErrMisuse], [ErrPeer], or
// [ErrExhausted] near [Start.Limit]. A late, repeated or outdated message is not an
// error, and Handle returns nothing for it.
//
// A grant is a phase, not an event: look at Phase after each call.
//
// Some machines are also a [Keeper], a [Lender], a [Coordinator], an [Excluder], a [Sharer],
// a [Declarer] or a [Ticker].
type Machine interface {
	// Request asks for the lock: Idle to Waiting, or to Held at once if no
	// other node has to agree.
	Request() ([]Message, error)

	// Cancel withdraws the request: Waiting to Idle. The other nodes are not
	// told: when the request is granted, the machine passes the grant on. A
	// Request before that resumes the withdrawn one. Only a request that keeps out
	// nodes that share, see [Sharer], is taken back at once, and a Request is then a new one.
	Cancel() ([]Message, error)

	// Release leaves the critical section: Held to Idle.
	Release() ([]Message, error)

	// Handle takes a message from a peer.
	Handle(m Message) ([]Message, error)

	// Phase returns the state of the lock at this node.
	Phase() Phase

	// Fence returns the fence of the current grant, and 0 when not Held.
	// Of any two grants of one lock the later has the higher fence, unless both share.
	Fence() uint64

	// Pending reports whether a request awaits its grant, withdrawn or not. A
	// withdrawn request still gets its turn, unless it is taken back, and if its
	// node stops for good before that, the other nodes wait.
	Pending() bool

	// WaitsFor appends the peers from which the request, withdrawn or not, needs
	// an answer; none unless a request is pending. It is used to find cycles of
	// waits, and the locks that still need a departing node. Few peers are better
	// than many: a search may ask each of them, and the request fails if one of
	// them leaves.
	//
	// First law: whenever one node is Waiting and another is Held, and not both
	// share, the holder is among the waiter's WaitsFor; or one of these peers, or the
	// waiter itself, is a [Lender] that Lends to the holder, or a [Sharer] with the
	// holder among its Sharers.
	//
	// Second law: suppose that a node without a request stops, that everything
	// it has sent still arrives, and that everything sent to it is lost. Once
	// the others have handled what it sent, they continue without it as long
	// as it is in the WaitsFor of none of them.
	WaitsFor(b []NodeID) []NodeID

	// Forget reports whether the driver may drop the machine, so that memory is
	// needed only for the locks in use. It may if a new machine would have the
	// same state, made with the same Start but no Holder, and the returned Clock and
	// Known, apart from what a [Keeper] need not keep. Higher values of both
	// serve as well, so a node may keep the maximum over all machines that it
	// dropped.
	Forget() (clock, known uint64, ok bool)

	// AppendText appends the whole state in canonical form: machines of one
	// group, with the same algorithm and options, behave alike forever if
	// their texts are equal. The error is always nil.
	AppendText(b []byte) ([]byte, error)

	// Clone returns an independent copy, of the same type.
	Clone() Machine
}

// A Keeper is a Machine that may be at rest and still keep something that outlives
// requests. While it keeps what must not be lost, such as the token, Forget
// reports false. While it keeps only what saves messages, such as the permission
// not to ask, Forget reports true.
type Keeper interface {
	// Keeps reports whether the machine is at rest and keeps such a thing: it has
	// no request, and owes no peer an answer.
	Keeps() bool
}

// A Lender is a Machine that lends, to one node at a time, something which that
// node needs to enter: a coordinator lends its grant, an arbiter its vote.
type Lender interface {
	// Lends returns the node that has it, as far as this node knows. That may be
	// this node itself. It is None while nothing is lent.
	Lends() NodeID
}

// A Coordinator is a Machine that may know which node holds the lock, even if
// that is another one.
type Coordinator interface {
	// Holder returns the node to which the lock is granted, and None if it is
	// free or this node does not know.
	Holder() NodeID
}

// An Excluder is a Machine that may know that a certain peer cannot have the lock, so that
// nothing need be waited for if that peer crashes.
type Excluder interface {
	// Excludes reports whether a peer is not Held, and cannot be until this node sends
	// another message. False only says that this node does not know.
	//
	// Third law: suppose that a node stops, that everything it has sent still arrives,
	// and that the others go on. Then no peer that its machine excludes is ever Held.
	//
	// The answers of a new machine depend only on Self, Members, Home, Holder and Sharers
	// of its Start. So a node knows those of another node's new machine, too, if it knows who
	// holds the lock.
	Excludes(peer NodeID) bool
}

// A Sharer is a Machine whose lock several nodes may hold at the same time if all of them
// share. Two requests, or holds, conflict unless both share; those that conflict are granted in
// order. Request, Cancel and Release are as in any machine, and so are all messages and states
// while no node shares.
//
// A withdrawn request keeps out no node that shares: one to hold the lock alone gives up its turn
// as soon as its machine learns that it does so. Once everything sent has arrived, no request is
// pending if all nodes that wait for the lock, or hold it, share it.
type Sharer interface {
	// Share asks for the lock as Request does, and lets others that share in. Each of the two
	// resumes a withdrawn request of its own kind, and returns [ErrMisuse] while one of the
	// other kind is pending.
	Share() ([]Message, error)

	// Shared reports whether this node's request, pending, withdrawn or held, shares.
	Shared() bool

	// Wanted reports whether, as far as this node knows, a request waits that conflicts with
	// its hold to share.
	Wanted() bool

	// Sharers appends the nodes to which the lock is granted to share, as far as this node knows.
	Sharers(b []NodeID) []NodeID

	// ExcludesAlone is as Excludes of an [Excluder], with the same laws, of holds that do not
	// share: the peer does not hold the lock alone, and cannot until this node sends another message.
	ExcludesAlone(peer NodeID) bool
}

// A Declarer is a Machine that declares what all members must agree on, on one line: the name of
// the algorithm, the version of its messages, and its options, as in "central/1 coordinator 2".
// The machines of one group declare the same, and drivers compare that. For other machines they
// take the first word of AppendText as the name, and version 1.
type Declarer interface {
	Declare() string
}

// A Ticker is a Machine that depends on time. Its driver calls Tick at
// intervals of its choice; the machine counts the ticks.
type Ticker interface {
	// Tick says that one interval has passed.
	Tick() ([]Message, error)
}

// An Algorithm makes the machine of one lock at one node. It returns
// [ErrMisuse] for a Start that is not valid.
type Algorithm func(Start) (Machine, error)

var (
	// ErrMisuse is the caller's mistake, such as releasing a lock that is not held.
	ErrMisuse = mistake.ErrMisuse

	// ErrPeer is a message that no correct peer sends, such as one from a nonmember.
	ErrPeer = mistake.ErrPeer

	// ErrExhausted is returned by Request when the group has no fence left for
	// another grant, or no logical time for another request. The lock works again
	// in a group with higher fences.
	ErrExhausted = errors.New("dmutex: exhausted")
)

// Misuse returns an [ErrMisuse] that says why.
func Misuse(why string) error { return mistake.Misuse(why) }

// PeerMistake returns an [ErrPeer] that says why.
func PeerMistake(why string) error { return mistake.Peer(why) }

// Exhausted returns an [ErrExhausted] that says what is used up.
func Exhausted(why string) error { return mistake.New(ErrExhausted, why) }
