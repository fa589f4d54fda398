// Package lockrecord is a lock in one record of a store, as a machine without I/O.
//
// # The rules
//
// The record says who holds the lock: its life, its name, a fence and a lease L. Every change is a
// compare-and-swap from the revision that was seen last.
//
//	free     a contender swaps itself in, with a higher fence
//	renew    the holder swaps in time. Its lease ends L after it sent the last
//	         swap that succeeded, by its own clock. Then the lock is lost for good
//	replace  a contender that has seen one revision for D swaps itself in: D counts from
//	         the receipt of the first load that showed it, or later, see prove.
//	         D = L(1+rho)/(1-rho), see package leases
//	prove    it does so at once if the holder of that revision is proved dead, and not at
//	         all while a store that can prove it has not: so the lock of a process on the
//	         same machine lasts as long as the process, or a child of it, lives. A holder
//	         with such a life keeps the lock past its lease, and renews from its own revision.
//	         If such a store does not know the life, the lease decides, and D counts from
//	         the store's answer, while it does not take that back
//	resolve  after a swap of unknown outcome the record is loaded, and swapped again from
//	         there. A load extends no lease
//	release  the holder swaps itself out, and the fence stays. So does a contender that leaves while a
//	         swap of its own may yet take effect, because its outcome is unknown and the record has not
//	         changed since: no swap from an earlier revision succeeds then
//
// Where there is no record the lock is free. There may have been one, which was lost or removed.
// Its fences were not above the clock, and all fences begin there.
//
// # Why it is right
//
// Take the last swap of a holder that succeeded. It was sent before it took effect, so the
// lease ends less than L/(1-rho) of true time after its revision began. A contender that
// replaces the holder has loaded that revision, and waited D by its clock: at least
// D/(1+rho) of true time, which is L/(1-rho). Its swap succeeds only if no other swap has
// come between. This needs no word about how long operations take.
//
// A holder with a life may hold the lock after that lease. When the store has forgotten the life, as if its file was
// removed, the holder ends the hold within L, or swaps. So D counts from an answer of the store, which came after that.
//
// A swap that was given up may still take effect before the next one from its revision, which then
// fails. Otherwise it never takes effect.
package lockrecord

import (
	"errors"
	"math"
	"strconv"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/internal/recordtext"
)

// A Machine is one attempt of one life to hold the lock once. Times are nanoseconds of a clock
// that counts sleep. The driver
//
//	starts what Operation returns, and gives its outcome to Loaded, Swapped or Unknown: one
//	of them, once, also if the store never answers
//	asks for the next one at Deadline, and calls Poll from time to time while it waits for a life
//	calls Prover first if the store can tell when a life is over, Proved when it has told,
//	Unprovable when it cannot, and Provable when it may again
//	ends the hold a margin before Expiry, by a timer of its own, and then calls End. It
//	does not if this life lasts
//	calls Release when the caller does, and for a hold that was lost at Expiry, or a margin after
//	the loss if the clock has leapt beyond that
type Machine struct {
	lock  string
	life  string
	name  string                  // of the process, for people
	drain func(lease int64) int64 // D

	proves bool // the store can tell when a life is over
	lasts  bool // and will tell the others of this one

	// The operation under way.
	op     Operation
	swap   Record
	sentAt int64

	// What the last answer has shown.
	seen   bool
	record Record // zero if there is none
	rev    string
	seenAt int64 // the receipt of the first answer that showed rev
	proved bool  // nobody holds the lock by rev
	stale  bool  // load before the next swap
	unsure bool  // a swap of this life from rev may have changed the record since, or may yet

	unprovable string // a life whose end the store cannot prove

	phase   Phase
	leaving bool        // Release was called
	term    leases.Term // confirmed by swaps
	err     error
}

// A Phase is where an attempt stands.
type Phase uint8

// The phases, in their order.
const (
	Waiting Phase = iota
	Held
	Ended // it was held, and the record may still say so
	Over  // nothing is left to do
)

// An Operation is what the store is to do.
type Operation uint8

// The operations.
const (
	None Operation = iota
	Load
	Swap
)

// ErrTaken is the error of a hold that another life has replaced, or whose record was deleted.
var ErrTaken = errors.New("another process has the lock, or the record was deleted")

// New returns a machine of this life, which no other attempt has, in a process of this name. The
// lease is in nanoseconds.
func New(lock, life, name string, lease int64) *Machine {
	return &Machine{lock: lock, life: life, name: name, term: leases.Term{Length: lease}, drain: leases.Drain, stale: true}
}

// Prover tells the machine that the store can tell when a life is over, and whether it will tell the
// others of this one. Then this life lasts: nobody replaces it before, and the end of its lease is
// not that of the hold.
func (m *Machine) Prover(lasts bool) { m.proves, m.lasts = true, lasts }

// Phase returns where the attempt stands now.
func (m *Machine) Phase(now int64) Phase {
	m.expire(now)
	return m.phase
}

// Fence returns the fence of the grant, while the machine is Held.
func (m *Machine) Fence() uint64 { return m.record.Fence }

// Err returns why the hold has ended or the attempt is over. It is nil if it was released, or if
// its lease has ended.
func (m *Machine) Err() error { return m.err }

// Term returns the term of the lease, while the machine is Held.
func (m *Machine) Term() leases.Term { return m.term }

// Expiry returns when that expires.
func (m *Machine) Expiry() int64 { return m.term.Expiry() }

// Awaits reports whether the machine waits for another life. It returns the record and the revision
// that were seen.
func (m *Machine) Awaits() (r Record, rev string, ok bool) {
	ok = m.phase == Waiting && m.op == None && !m.stale && m.blocked()
	return m.record, m.rev, ok
}

// mine reports whether this life holds the lock by the record.
func (m *Machine) mine() bool { return m.record.Holder == m.life }

// blocked reports whether another life may hold the lock by the record.
func (m *Machine) blocked() bool { return m.record.Holder != "" && !m.mine() && !m.proved }

// next returns the next operation, and from when on it is due.
func (m *Machine) next() (op Operation, at int64) {
	switch {
	case m.op != None || m.phase == Over:
		return None, due.Never
	case m.phase == Ended && !m.leaving:
		return None, m.Expiry()
	case m.stale:
		return Load, math.MinInt64
	case m.leaving: // the right to swap from this revision does not end
		return Swap, math.MinInt64
	case m.phase == Held:
		return Swap, m.term.Renew(leases.Renew)
	case m.blocked() && m.proves && m.record.Holder != m.unprovable:
		return Swap, due.Never
	case m.blocked():
		return Swap, m.seenAt + m.drain(m.record.Lease)
	}
	return Swap, math.MinInt64
}

// Operation returns the operation that is due, with the value and the revision of a Swap. It
// counts as sent now. A fence that is drawn is above the floor, which stands at the clock.
func (m *Machine) Operation(now int64, floor uint64) (op Operation, value []byte, rev string) {
	m.expire(now)
	op, at := m.next()
	if op == None || now < at {
		return None, nil, ""
	}
	if op == Swap {
		m.swap = Record{m.lock, m.record.Fence, m.term.Length, m.life, m.name}
		switch {
		case m.leaving:
			m.swap.Fence = max(m.record.Fence, 1)
			m.swap.Holder, m.swap.Name = "", ""
		case !m.mine():
			m.swap.Fence = max(m.record.Fence, floor) + 1
			if m.swap.Fence > maxFence {
				m.phase, m.err = Over, badRecord("its fences are used up")
				return None, nil, ""
			}
		}
		m.unsure = true
		value = m.swap.AppendText(nil)
	}
	m.op, m.sentAt = op, now
	return op, value, m.rev
}

// Deadline returns when the next operation will be due, [due.Never] if no time. For a hold that was
// lost it is the end of the lease.
func (m *Machine) Deadline() int64 {
	_, at := m.next()
	return at
}

// Leapt tells the machine, before an input, by how much its clock has run ahead of a steady one since the last input,
// as when the wall clock was set forward. A wait must not end too soon; a lease may.
func (m *Machine) Leapt(by int64) { m.seenAt += by }

// expire ends a hold whose lease has ended. It comes before each input: an input may extend the lease,
// and what has ended must not come back.
func (m *Machine) expire(now int64) {
	if m.phase == Held && !m.lasts && m.term.Over(now) {
		m.phase = Ended
	}
}

// Poll asks for a load.
func (m *Machine) Poll() { m.stale = true }

// Proved tells the machine that no process lives that could hold the lock by this revision.
func (m *Machine) Proved(rev string) { m.proved = m.proved || rev == m.rev }

// Unprovable tells the machine that the store cannot tell whether this life is over.
func (m *Machine) Unprovable(now int64, life string) {
	if m.proves && life != m.unprovable {
		m.unprovable, m.seenAt = life, now
	}
}

// Provable takes back what Unprovable has said.
func (m *Machine) Provable() { m.unprovable = "" }

// End ends the hold, although the record may still say otherwise.
func (m *Machine) End() {
	if m.phase == Held {
		m.phase = Ended
	}
}

// Release ends the hold, or the wait for it. The machine is Over when the record says so, too, and no swap of this life can
// change that.
func (m *Machine) Release(now int64) {
	m.expire(now)
	m.leaving = true
	m.End()
	m.settle()
}

// settle ends an attempt that leaves, if it is not in the record, and no swap can have changed that.
func (m *Machine) settle() {
	if m.leaving && !m.mine() && !m.unsure {
		m.phase = Over
	}
}

// finish ends the operation under way.
func (m *Machine) finish(now int64) {
	m.expire(now)
	m.op = None
}

// Loaded takes what a load has shown. The value is empty if there is no record.
func (m *Machine) Loaded(now int64, value []byte, rev string) {
	m.finish(now)
	r, err := parse(value, m.lock)
	if err != nil {
		m.phase, m.err = Over, err
		return
	}
	if !m.seen || rev != m.rev {
		m.seenAt, m.proved = now, false
	}
	m.stale, m.unsure = false, m.unsure && rev == m.rev
	m.seen, m.record, m.rev = true, r, rev
	if m.phase == Held && !m.mine() {
		m.phase, m.err = Ended, ErrTaken
	}
	m.settle()
}

// Swapped tells the machine that the swap was done.
func (m *Machine) Swapped(now int64, rev string) {
	m.finish(now)
	m.record, m.rev, m.seenAt, m.proved = m.swap, rev, now, false
	m.unsure = false
	if m.mine() {
		if m.lasts { // its end was none
			m.term = leases.Term{Length: m.term.Length}
		}
		if m.term.Confirm(now, m.sentAt, m.term.Length) && m.phase == Waiting && !m.leaving {
			m.phase = Held
		}
	}
	m.settle()
}

// Unknown tells the machine that the swap was not done because the record has changed, or that the
// outcome of the operation is unknown: the next load shows which.
func (m *Machine) Unknown(now int64) {
	m.finish(now)
	m.stale = true
}

// ErrRecord is wrapped by the errors of a record that is not one of this lock.
var ErrRecord = errors.New("bad record")

const header = "dmutex lock 1\n"

// Bounds of what a record says.
const (
	MaxName = 1024 // the length of the longest name of a lock

	maxFence = 1<<63 - 1 // fits the signed numbers of databases
)

// A Record is what the store holds about a lock.
type Record struct {
	Lock   string
	Fence  uint64 // of the last grant
	Lease  int64  // of the last holder, in nanoseconds
	Holder string // its life; empty if the lock is free
	Name   string // of its process, for people
}

// AppendText appends the record as lines of text.
func (r *Record) AppendText(b []byte) []byte {
	return append(b, header+"lock "+strconv.Quote(r.Lock)+"\nfence "+strconv.FormatUint(r.Fence, 10)+
		"\nlease "+strconv.FormatInt(r.Lease, 10)+"\nholder "+r.Holder+"\nname "+strconv.Quote(r.Name)+"\n"...)
}

// parse reads what AppendText has written of this lock, and nothing else. No text is no record.
func parse(text []byte, lock string) (r Record, err error) {
	if len(text) == 0 {
		return r, nil
	}
	if r, err = read(text); err == nil && r.Lock != lock {
		err = badRecord("it is of the lock " + strconv.Quote(r.Lock) + ", not of " + strconv.Quote(lock) + ": give each lock a record of its own")
	}
	return r, err
}

// Free reports whether the text is the record of a lock that is free, and whose last grant has a fence below this.
func Free(text []byte, below uint64) bool {
	r, err := read(text)
	return err == nil && r.Holder == "" && r.Fence < below
}

// read reads what AppendText has written, and nothing else.
func read(text []byte) (r Record, err error) {
	rest := string(text[min(len(header), len(text)):])
	field := func() string {
		recordtext.Word(&rest) // its name
		return recordtext.Word(&rest)
	}
	r.Lock = field()
	r.Fence, _ = strconv.ParseUint(field(), 10, 64)
	r.Lease, _ = strconv.ParseInt(field(), 10, 64)
	r.Holder, r.Name = field(), field()
	if string(r.AppendText(nil)) != string(text) || r.Fence == 0 || r.Fence > maxFence ||
		r.Lease < leases.Min || r.Lease > leases.Max || !recordtext.IsLife(r.Holder) || !names.Is(r.Name) {
		return r, badRecord("it is not one of a lock: use another record, or delete it")
	}
	return r, nil
}

// A badRecord is an [ErrRecord] that says why.
type badRecord string

func (why badRecord) Error() string { return ErrRecord.Error() + ": " + string(why) }
func (why badRecord) Unwrap() error { return ErrRecord }
