package lease

import (
	"errors"
	"math"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
)

// A register is a life's conversation with the store, rules 5.1 and 5.6. There is one operation
// at a time, and never a swap from what is out of date: a swap whose outcome is a conflict or unknown
// is followed by a load.
type register struct {
	record Record // that the last operation that succeeded has shown

	// The operation under way, if there is one.
	op     Operation
	next   Record // of a swap
	sentAt int64
	unsure bool // a swap of unknown outcome may have taken effect: nothing was loaded since

	// The next operation.
	stale    bool  // the record is to be loaded before it is changed
	loadAt   int64 // when, if so
	renewAt  int64 // when to load it to renew the lease
	hintAt   int64 // when to load it because it may have changed; never if nothing says so
	prompted bool  // the load under way was asked for by a hint
	vain     int   // loads in a row that were, and have shown nothing new
	fails    int   // operations without an outcome since the last with one
	losses   int   // swaps that were too late, in a row
	most     int64 // the longest pause before the store is asked again
}

// newRegister returns the register of a life that has asked nothing yet.
func newRegister(lease int64) register {
	return register{stale: true, loadAt: math.MinInt64, renewAt: due.Never, hintAt: due.Never, most: lease / leases.Retry}
}

// Operation is what a [Machine] wants of the store.
type Operation uint8

// The operations.
const (
	NoOperation Operation = iota
	Load                  // read the value, linearizably
	Swap                  // write the value, if the store has what this life was shown last
	Live                  // begin a life of the store, which is over when this life can hold nothing any more
	Look                  // ask who lives: all lives of the store that have begun and are not over
)

// begin begins an operation, with a value to swap, and returns what the driver is to do.
func (r *register) begin(now int64, op Operation, value []byte) membership.Event {
	r.op, r.sentAt = op, now
	return Ask{op, value}
}

// ErrConflict is the outcome of a swap that was not done, because the record has changed.
var ErrConflict = errors.New("membership: the record has changed")

// ErrForgotten is the outcome of a load of a store that has begun anew: what it has shown before never comes back, and no
// swap from it succeeds.
var ErrForgotten = errors.New("membership: the store has begun anew")

// finish ends the operation under way. If it has failed, the record is loaded after a pause. Lives that
// have lost a swap together pause at least so long, and each for another time, by Fibonacci hashing of
// their numbers. A renewal may wait for that, so it is short.
func (r *register) finish(now, pause int64, life uint64, err error) (op Operation, sent int64) {
	op, sent = r.op, r.sentAt
	r.op = NoOperation
	switch {
	case err == ErrConflict:
		window := min(pause<<r.losses, r.most)
		r.stale, r.loadAt = true, now+int64((life+uint64(r.losses))*0x9e3779b97f4a7c15>>24%uint64(window))
		r.fails, r.losses = 0, min(r.losses+1, membership.MaxFails)
	case err == ErrForgotten:
		r.fails, r.stale, r.unsure = 0, false, false
	case err != nil:
		r.unsure = r.unsure || op == Swap
		r.stale, r.loadAt = true, now+min(membership.MinPause<<r.fails, r.most)
		r.fails = min(r.fails+1, membership.MaxFails)
	case op == Swap:
		r.fails, r.losses = 0, 0
	case op == Load:
		r.fails, r.stale, r.unsure = 0, false, false
	}
	return op, sent
}

// nextLoad returns when the record is to be loaded.
func (r *register) nextLoad() int64 {
	switch {
	case r.op != NoOperation:
		return due.Never
	case r.stale:
		return r.loadAt
	default:
		return min(r.hintAt, r.renewAt)
	}
}

// load begins a load.
func (r *register) load(now int64) membership.Event {
	r.prompted, r.hintAt = !r.stale && r.hintAt <= now, due.Never
	return r.begin(now, Load, nil)
}

// loaded notes whether a load has shown anything new.
func (r *register) loaded(news bool) {
	if r.vain = min(r.vain+1, membership.MaxFails); !r.prompted || news {
		r.vain = 0
	}
}

// hint plans a load, a pause after the last operation was asked for.
func (r *register) hint(now, pause int64) { r.hintAt = min(r.hintAt, max(now, r.sentAt+pause)) }

// rumor plans a load because of a hint that anybody can bring about. Hints that say nothing new lead
// to fewer loads.
func (r *register) rumor(now int64) {
	r.hint(now, min(membership.MinPause<<r.vain, max(membership.MinPause, r.most)))
}

// contradicted is rule 5.6: it says how a record contradicts the one that was read before, "" if it does not.
func (r *register) contradicted(next *Record) string {
	switch {
	case next.Epoch < r.record.Epoch:
		return "it went back to epoch " + strconv.FormatUint(next.Epoch, 10) + " from " + r.epoch()
	case next.Epoch == r.record.Epoch && next.text() != r.record.text():
		return "it has changed within epoch " + r.epoch()
	case next.Unclean < r.record.Unclean || next.Unproved < r.record.Unproved || next.Cleared < r.record.Cleared || next.Highest < r.record.Highest:
		return "it has forgotten what was before epoch " + strconv.FormatUint(next.Epoch, 10)
	case slices.ContainsFunc(next.Members, func(e Entry) bool { return e.Node <= r.record.Highest && r.record.number(e.Life) != e.Node }):
		return "it has given a number to a second process"
	}
	return ""
}

func (r *register) epoch() string { return strconv.FormatUint(r.record.Epoch, 10) }
