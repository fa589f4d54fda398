// Package trace records the events of a node in a file: every input of its machines
// with the result, the lives of its peers, and its views. A trace can be replayed
// ([Replay]) and drawn (dmutex trace draw). A life is one run of a node's process,
// identified by a number; each life has its own file.
//
// # The file
//
// One JSON object a line. The first line is the [Header]:
//
//	{"dmutex":"trace","version":4,"self":2,"members":[1,2,3],"algorithm":"ricart 2 idle","life":7,"opened":1700000000000000000}
//
// Each other line is an [Event]:
//
//	{"t":81250,"do":"born","lock":"x","phase":"idle"}
//	{"t":81250,"do":"request","lock":"x","out":[{"kind":"REQUEST","to":1,"seq":2,"attempt":1},{"kind":"REQUEST","to":3,"seq":2,"attempt":1}],"phase":"waiting"}
//	{"t":190400,"do":"handle","lock":"x","in":{"kind":"REPLY","from":3,"seq":2,"attempt":1},"phase":"waiting"}
//	{"t":201900,"do":"handle","lock":"x","in":{"kind":"REPLY","from":1,"seq":2,"attempt":1},"phase":"held","fence":1}
//
// A field that is zero is left out, except t, do and, where there is a machine,
// phase. There is one way to write an event, and [Read] accepts no other: that of
// encoding/json without the escapes for HTML, the keys in the order of the table.
//
//	t        nanoseconds since the node opened, by the monotonic clock
//	do       what happened, see [What]
//	lock     the lock's name; "hex" instead, with the bytes in hexadecimal, if the name is no UTF-8
//	peer     another node
//	life     of the peer; of renamed this node's own
//	n        how many; of view and ready the epoch
//	members  of view and ready: the members of the view
//	clock    see dmutex.Start
//	known    see dmutex.Start
//	limit    see dmutex.Start; of view and ready that of their machines
//	holder   see dmutex.Start
//	in       the message that came
//	out      the messages that were sent
//	phase    of the machine, after the event
//	fence    of the machine, after the event; when it is born, see dmutex.Start
//	err      why
//
// A message has kind, to or from, seq, attempt, clock, fence, numbers and nodes; see
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
	version = 4       // of the file format
	maxLine = 1 << 20 // the length of the longest line, in bytes
)

// Header is what all events of a trace have in common.
type Header struct {
	Self    dmutex.NodeID   `json:"self,omitempty"`
	Members []dmutex.NodeID `json:"members,omitempty"` // ascending
	Group   string          `json:"group,omitempty"`

	// Algorithm is what [Describe] returns. It identifies the algorithm for a
	// replay.
	Algorithm string `json:"algorithm,omitempty"`

	// Life names this run of the process; 0 if there is but one. See [Renamed].
	Life uint64 `json:"life,omitempty"`

	// Opened is the time when the node opened, in nanoseconds since 1970 by the
	// wall clock; 0 if time is virtual. It only serves to align the files of
	// several nodes in a drawing, because wall clocks differ.
	Opened int64 `json:"opened,omitempty"`
}

// Describe returns the text by which a header identifies an algorithm: the
// state of a new machine of the node. The error is the algorithm's.
func Describe(algorithm dmutex.Algorithm, self dmutex.NodeID, members []dmutex.NodeID) (string, error) {
	m, err := algorithm(dmutex.Start{Self: self, Members: members})
	if err != nil {
		return "", err
	}
	text, err := m.AppendText(nil)
	return string(text), err
}

// A What is the kind of an [Event].
type What string

// What happens to the machine of a lock.
const (
	Born    What = "born"    // with Clock, Known, Limit, Fence, Holder and Home; its members are those of the last View, or else of the Header
	Request What = "request" // as the methods of dmutex.Machine
	Cancel  What = "cancel"
	Release What = "release"
	Handle  What = "handle" // with In
	Tick    What = "tick"
	Forget  What = "forget" // the machine is gone; the next event of this lock is Born
)

// What a node sees of its peers, each with Peer.
const (
	Met       What = "met"       // the first life of the peer, with Life
	Restarted What = "restarted" // another life, with Life
	Left      What = "left"      // the peer has closed
)

// What happens to the node as a whole.
const (
	View    What = "view"    // the view of epoch N with Members is installed; all machines of the last view were forgotten before
	Ready   What = "ready"   // that view acts, with N and Members; the machines of the locks in use were born before
	Trouble What = "trouble" // this node asks for another view, with Err
	Renamed What = "renamed" // this node continues as another life, with Life: it was in no view yet, and its clock is behind that of a former life
	Down    What = "down"    // nothing more is granted: Close was called, or Err says why
	Close   What = "close"   // the last event of a node that shut down gracefully
	Gap     What = "gap"     // N events are missing here
)

var (
	inputs = []What{Request, Cancel, Release, Handle, Tick} // of a machine
	others = []What{Met, Restarted, Left, View, Ready, Trouble, Renamed, Down, Close, Gap}
)

func (w What) input() bool { return slices.Contains(inputs, w) }

// ofLock reports whether w happens to a lock.
func (w What) ofLock() bool { return w.input() || w == Born || w == Forget }

// known reports whether w is one of the constants.
func (w What) known() bool { return w.ofLock() || slices.Contains(others, w) }

// An Event is one line of a trace. A field that its What does not use is zero.
type Event struct {
	Time int64 // nanoseconds since the node opened
	What What
	Lock string

	Peer    dmutex.NodeID
	Life    uint64
	N       uint64
	Members []dmutex.NodeID

	Clock  uint64
	Known  uint64
	Limit  uint64
	Holder dmutex.NodeID
	Home   dmutex.NodeID

	In    Message
	Out   []Message
	Phase dmutex.Phase
	Fence uint64

	// Err is the reason. With an input, it says that the machine has refused
	// the input, and so has not changed.
	Err string

	// Line is where the event stands in its file, from 1; 0 if it was not read
	// from one.
	Line int
}

// A Message is one that was sent or received.
type Message struct {
	// Seq is the message's number, see the package comment; 0 if it was never
	// handed to a session.
	Seq uint64
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
