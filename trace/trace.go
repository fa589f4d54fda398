// Package trace records the events of a node in a file: every input of its machines
// with the result, the lives of its peers, its views, and its lease. A trace can be
// replayed (dmutextest.Replay), and drawn and judged with those of the other nodes (dmutex trace). A
// life is one run of a node's process, identified by a number; each life has its own file, but
// a process that was excluded joins again in the same one.
//
// # The file
//
// One JSON object a line. The first line is the [Header]:
//
//	{"dmutex":"trace","version":5,"self":2,"members":[1,2,3],"algorithm":"ricart 2 idle","life":7,"opened":1700000000000000000}
//
// Each other line is an [Event]:
//
//	{"t":81250,"do":"born","lock":"x","phase":"idle"}
//	{"t":81250,"do":"request","lock":"x","out":[{"kind":"REQUEST","seq":2,"to":1,"attempt":1},{"kind":"REQUEST","seq":2,"to":3,"attempt":1}],"phase":"waiting"}
//	{"t":190400,"do":"handle","lock":"x","in":{"kind":"REPLY","seq":2,"from":3,"attempt":1},"phase":"waiting"}
//	{"t":201900,"do":"handle","lock":"x","fence":1,"in":{"kind":"REPLY","seq":2,"from":1,"attempt":1},"phase":"held"}
//
// There is one way to write an event, and [Read] accepts no other: that of encoding/json
// without the escapes for HTML, the fields in the order of Event, then in, out, phase and hex.
// A field that is zero is left out, except t, do and, where there is a machine, phase. If the
// name of a lock is not UTF-8, the field hex has its bytes in hexadecimal.
//
// A message has kind, seq, to or from, attempt, clock, fence, numbers and nodes; see
// [dmutex.Message]. seq is the number that the session gives it: it is the seq-th
// message from one life to the other. So a message sent in one file can be matched
// exactly with its receipt in another.
//
// The events of one lock are in order. Events of different locks may be out of
// order.
package trace

import (
	"slices"

	"github.com/dmutex/dmutex"
)

const (
	version = 5       // of the file format
	maxLine = 1 << 20 // the length of the longest line, in bytes
)

// Header is what all events of a trace have in common.
type Header struct {
	// Self and Members are those of a group without a store; Members is ascending. With a
	// store, both are zero, and each [View] says them.
	Self    dmutex.NodeID   `json:"self,omitempty"`
	Members []dmutex.NodeID `json:"members,omitempty"`

	Name  string `json:"name,omitempty"` // of the process, for people
	Group string `json:"group,omitempty"`

	// Algorithm is what [Describe] returns. It identifies the algorithm for a
	// replay.
	Algorithm string `json:"algorithm,omitempty"`

	// Life names this run of the process; 0 if there is only one. See [View].
	Life uint64 `json:"life,omitempty"`

	// Opened is the time when the node opened, in nanoseconds since 1970 by the
	// wall clock; 0 if time is virtual. It only serves to align the files of
	// several nodes, because wall clocks differ.
	Opened int64 `json:"opened,omitempty"`
}

// Describe returns the text by which a header identifies an algorithm: the state of a new
// machine of the node, or of node 1 of 3 if the header names no members. The error is the
// algorithm's.
func Describe(algorithm dmutex.Algorithm, self dmutex.NodeID, members []dmutex.NodeID) (string, error) {
	if self == dmutex.None {
		self, members = 1, []dmutex.NodeID{1, 2, 3}
	}
	m, err := algorithm(dmutex.Start{Self: self, Members: members})
	if err != nil {
		return "", err
	}
	text, err := m.AppendText(nil)
	return string(text), err
}

// A What is the kind of an [Event].
type What string

// What happens to a lock.
const (
	Born    What = "born"    // with Clock, Known, Limit, Fence, Holder, Sharers and Home; its machine has the members of the last View, or else of the Header
	Request What = "request" // as the methods of dmutex.Machine
	Share   What = "share"   // as that of dmutex.Sharer
	Cancel  What = "cancel"
	Release What = "release"
	Handle  What = "handle" // with In
	Tick    What = "tick"
	Forget  What = "forget" // the machine is gone; the next event of this lock is Born
	Lose    What = "lose"   // In is lost on its way here, in a script or by hand: only such a network knows
	Waits   What = "waits"  // a request is not sent yet: former members, with Members, may hold the lock until their leases end
)

// What a node sees of its peers, each with Peer.
const (
	Met      What = "met"      // the peer is there, with Life; it has restarted if that is another one than before
	Left     What = "left"     // the peer has closed
	Silent   What = "silent"   // the peer gives no sign of life
	Dead     What = "dead"     // the peer's process has ended: a store proves it if N is 1, and without Peer it proves this of all processes that are no members
	Excluded What = "excluded" // the group goes on without the peer, or without this node
)

// What happens to the node as a whole.
const (
	View    What = "view"    // the view of epoch N with Members and Limit is installed, in which this node is Peer with Life; the last view's machines were forgotten before
	Ready   What = "ready"   // that view acts, with N; the machines of the locks in use were born before
	Trouble What = "trouble" // this node asks for another view, with Err
	Lease   What = "lease"   // from now on locks may be held for N nanoseconds, unless this event comes again
	Down    What = "down"    // nothing more is granted: Close was called, or Err says why
	Close   What = "close"   // the last event of a node that shut down gracefully
	Gap     What = "gap"     // N events are missing here
)

var (
	inputs = []What{Request, Share, Cancel, Release, Handle, Tick} // of a machine
	others = []What{Met, Left, Silent, Dead, Excluded, View, Ready, Trouble, Lease, Down, Close, Gap}
)

func (w What) input() bool { return slices.Contains(inputs, w) }

// ofLock reports whether w happens to a lock.
func (w What) ofLock() bool { return w.input() || w == Born || w == Forget || w == Lose || w == Waits }

// An Event is one line of a trace. A field that its What does not use is zero.
type Event struct {
	Time int64  `json:"t"` // nanoseconds since the node opened, by the monotonic clock
	What What   `json:"do"`
	Lock string `json:"lock,omitempty"`

	Peer    dmutex.NodeID   `json:"peer,omitempty"`
	Life    uint64          `json:"life,omitempty"`
	N       uint64          `json:"n,omitempty"`
	Members []dmutex.NodeID `json:"members,omitempty"`

	// See [dmutex.Start].
	Clock  uint64        `json:"clock,omitempty"`
	Known  uint64        `json:"known,omitempty"`
	Limit  uint64        `json:"limit,omitempty"`
	Holder dmutex.NodeID `json:"holder,omitempty"`
	Home   dmutex.NodeID `json:"home,omitempty"`

	Sharers []dmutex.NodeID `json:"sharers,omitempty"`

	In  Message   `json:"-"`
	Out []Message `json:"-"`

	// Of the machine, after the event; Fence of Born is that of dmutex.Start.
	Phase dmutex.Phase `json:"-"`
	Fence uint64       `json:"fence,omitempty"`

	Shared bool `json:"shared,omitempty"` // the lock is Held, and shared

	// Err is the reason. With an input, it says that the machine has refused
	// the input, and so has not changed.
	Err string `json:"err,omitempty"`

	// Line is where the event stands in its file, from 1; 0 if it was not read
	// from one.
	Line int `json:"-"`
}

// A Message is one that was sent or received.
type Message struct {
	// Seq is the message's number, see the package comment; 0 if it was never
	// handed to a session.
	Seq uint64 `json:"seq,omitempty"`
	dmutex.Message
}

// A Trace is a whole file.
type Trace struct {
	Header Header
	Events []Event

	// Name is that of the file, for errors.
	Name string

	// Cut reports that the file ends in the middle of a line, which is left
	// out: the process did not shut down gracefully, or is still writing.
	Cut bool
}
