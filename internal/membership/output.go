package membership

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
)

// An Output is what an input of a machine has caused. Its Events are in order, and the driver does what
// they say. The Messages may be kept. They leave after the peers of a [Members] are known, and before
// an [Acts] or another input.
type Output struct {
	Messages []Message
	Events   []Event
}

// And returns the output of two inputs, one after the other.
func (o Output) And(next Output) Output {
	return Output{append(o.Messages, next.Messages...), append(o.Events, next.Events...)}
}

// EventKind says what an [Event] is.
type EventKind uint8

// The kinds of events, and the fields that each uses.
const (
	// Installed tells that a newer View is installed. The driver freezes all that is older, and
	// then calls Report.
	Installed EventKind = iota + 1

	// Acts tells that the View that was installed last acts: its locks begin, with the Holdings that
	// its members have reported, see [Carry], and what they know of the Past.
	Acts

	// Ended tells that the part of this life is over, by Phase: Left, Older or Stopped. Of a
	// [Machine] that is Older or Stopped, Life is the later life of its number, 0 if it was evicted.
	// Of a [LeaseMachine] that is Stopped, Err says why.
	Ended

	// Doubted tells, in the strict mode, that this life is told that the others go on without it:
	// nothing is granted until it is Trusted or Ended.
	Doubted
	Trusted

	// Joined tells, in the lease mode, that the record has given this life the number Self.
	Joined

	// Excluded tells that this life is no member any more: what it held is lost. The driver calls
	// Rejoin with another life.
	Excluded

	// Members tells that the Record has changed while this life is a member: its members are the
	// peers from now on. Excludes says whether a member was excluded, and has not left.
	Members

	// Renewed tells the Term of this life: after it, it holds nothing.
	Renewed

	// Waiting tells that the leases of lives that were excluded until Epoch have ended. If Until is
	// not 0, those of later ones, until Unclean, may run until then, unless the machine learns
	// earlier that they do not.
	Waiting

	// Freed tells that a former member does not hold what it has lent by this Loan.
	Freed

	// Ask tells that the operation Op on the store is to be started, with a Value to swap. There is
	// one at a time; its outcome is given to Done.
	Ask
)

// An Event is something that an input of a machine has caused. A field that its Kind does not use is
// zero.
type Event struct {
	Kind     EventKind
	View     View
	Holdings []Holding
	Past     Past
	Phase    Phase
	Life     uint64
	Err      error
	Self     dmutex.NodeID
	Record   *Record
	Excludes bool
	Term     leases.Term
	Until    int64
	Epoch    uint64
	Unclean  uint64
	Former   dmutex.NodeID
	Loan     Loan
	Op       Operation
	Value    []byte
}
