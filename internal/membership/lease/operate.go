package lease

import (
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/recordtext"
)

// Done gives the machine the outcome of the operation under way. The value is what a Load has read,
// empty if the store has none, the name of the life that a Live has begun, empty if the store proves nothing,
// or the names of the lives that a Look has found, with blanks between. The driver
// ends that life when this one is no member any more, or is Stopped, and its lease has ended, or all
// that it held was released. Any error but ErrConflict and ErrForgotten means that the operation has failed, or was
// not answered in time: then a swap may have been done.
func (m *Machine) Done(now int64, value []byte, err error) membership.Output {
	if m.op == NoOperation || m.ended() {
		return m.flush(now)
	}
	m.in.Trip = now - m.sentAt
	again := m.fails > 0
	op, sent := m.finish(now, m.in.Pause(), m.cfg.Life, err)
	switch {
	case err == ErrConflict:
	case err == ErrForgotten:
		m.answered(now, sent)
		m.forget(now)
	case err != nil:
		if number := m.next.number(m.cfg.Life); op == Swap && m.self == dmutex.None && number != dmutex.None {
			m.asked = number // the join may have been done
		}
		if again { // in a row
			m.unanswered()
		}
	case op == Live:
		if m.begun, m.proof = true, string(value); !recordtext.IsLife(m.proof) {
			m.becomeStopped(dmutex.Misuse("membership: the store names a life " + strconv.Quote(m.proof) + ", not with 1 to 64 letters and digits"))
		}
	case op == Look:
		m.looked(now, string(value))
	case op == Swap:
		m.answered(now, sent)
		if m.leaving && m.next.number(m.cfg.Life) == dmutex.None { // nobody would report to them
			m.sendAll(membership.Message{Kind: membership.Decide, View: membership.View{Epoch: m.next.Epoch}})
		}
		m.learn(now, sent, m.next)
	default:
		epoch := m.record.Epoch
		m.answered(now, sent)
		m.read(now, sent, value)
		m.loaded(m.record.Epoch != epoch)
	}
	return m.flush(now)
}

// read takes in what a load has shown. A record that is gone stops this life (5.6).
func (m *Machine) read(now, sent int64, value []byte) {
	var r Record
	err := r.UnmarshalText(value)
	switch {
	case len(value) == 0 && m.record.Epoch > 0:
		m.becomeStopped(badRecord("it is gone, and its last epoch was " + m.epoch() + ": stop all members, and start them again"))
	case len(value) == 0:
	case err != nil:
		m.becomeStopped(err)
	default:
		m.learn(now, sent, r)
	}
}

// forget lets this process begin anew with a store that has begun anew (5.6). What it knows of epochs, numbers and leases is
// about a record that never comes back, and another record may count them again. If this life was a member, or
// may have been, the process goes on as another life, as after an exclusion. The members of the former record may not know yet
// that it is lost: a new record counts as an exclusion of all of them, and this life makes none while a lease may
// run that is longer than its own.
func (m *Machine) forget(now int64) {
	if m.record.Epoch == 0 && m.asked == dmutex.None {
		return
	}
	fresh := Machine{
		register: newRegister(m.cfg.Lease), clearing: clearing{drain: m.drain, wait: m.drain}, rejoining: m.rejoining,
		cfg: m.cfg, speak: m.speak, given: max(m.given, m.record.Highest, m.asked), begun: m.begun, proof: m.proof, leaving: m.leaving, holding: m.holding,
		troubleAt: due.Never, term: leases.Term{Length: m.cfg.Lease},
	}
	fresh.cfg.Fence = max(m.cfg.Fence, epochs.Last(m.record.Epoch)) // fences rise also if the clock stands behind
	if m.record.Lease > m.cfg.Lease {
		fresh.joinAt = max(m.joinAt, now+leases.Drain(m.record.Lease))
	}
	fresh.in.Trip, fresh.in.Out = m.in.Trip, m.in.Out
	spent := m.self != dmutex.None || m.asked != dmutex.None
	if *m = fresh; spent {
		m.becomeOutside(now, true)
	}
}

// mayAct lets the view act when all have reported (3.2), the lease runs (5.3), and it knows what waits (5.4, 5a).
func (m *Machine) mayAct(now int64) {
	for range 2 { // what is due, and the last exclusion
		if m.isDue(now, m.record.Unclean) {
			m.clear(m.due)
		}
	}
	m.settle(m.record.Unclean)
	if m.in.MayComplete() {
		var told []*membership.Past
		for _, r := range m.in.Reports {
			told = append(told, r.Past)
		}
		m.recall(told, m.record.Unclean, m.cleared)
	}
	if m.phase == Frozen && m.in.IsComplete() && m.cleared >= m.blind && m.term.State(now) != leases.Ended {
		m.becomeActing()
	}
}

// clear ends the wait for an exclusion (5.4), and tells the others.
func (m *Machine) clear(epoch uint64) {
	m.cleared = epoch
	m.tellWait()
	m.sendAll(membership.Message{Kind: membership.Cleared, Cleared: epoch})
}

// Living tells the machine the names of all lives of the store that had begun when the driver
// asked, and were not over when the store answered. Unclean is the last exclusion of the machine's record
// when the driver asked.
//
// If members of the record are all that live, that exclusion is cleared: a life that was excluded
// by then had begun its life of the store before it joined, so before the driver asked. It is
// never a member again, and the answer does not have it, so it holds nothing any more. Lives
// without one of the store must be cleared by a wait. A life that lives holds nothing, either, if
// it has left, or was excluded in an epoch that is cleared: a process that is stopped for long
// keeps nobody waiting twice. A life that is about to join a new record has begun its own, so the
// others wait until it has joined.
func (m *Machine) Living(now int64, unclean uint64, names []string) membership.Output {
	if !m.ended() && m.proves(unclean, &m.record, names) {
		m.clear(unclean)
	}
	return m.flush(now)
}
