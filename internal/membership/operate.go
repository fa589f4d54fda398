package membership

import (
	"errors"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
)

// This file has the operations on the store of a [LeaseMachine]: when they are begun, and
// their outcomes. It has rule 5.4, too: the wait for the leases of lives that were excluded, and
// how a store that can prove that a process is dead spares it.

func (m *LeaseMachine) begin(now int64, op Operation) { m.op, m.sentAt = op, now }

// nextLoad returns when the record is to be loaded.
func (m *LeaseMachine) nextLoad() int64 {
	switch {
	case m.op != NoOperation:
		return never
	case m.stale:
		return m.loadAt
	default:
		return min(m.hintAt, m.renewAt)
	}
}

// Hint tells the machine that the record may have changed. Anybody can bring about a hint.
// Hints that say nothing new lead to fewer loads.
func (m *LeaseMachine) Hint(now int64) []Message {
	m.hint(now, min(minPause<<m.vain, max(minPause, m.cfg.Lease/leases.Retry)))
	return m.flush(now)
}

// hint plans a load, a pause after the last operation was asked for.
func (m *LeaseMachine) hint(now, pause int64) {
	m.hintAt = min(m.hintAt, max(now, m.sentAt+pause))
}

// ErrConflict is the outcome of a swap that was not done, because the record has changed.
var ErrConflict = errors.New("membership: the record has changed")

// Done gives the machine the outcome of the operation under way. The value is, of a Load, what it
// has read, empty if the store has none; and of a Live, the name of the life that it has begun, empty
// if the store proves nothing. The driver ends that life when this one is no member any more, or is
// Stopped, and its lease has ended, or all that it held was released. Any error but ErrConflict means
// that the operation has failed, or was not answered in time: then a swap may have been done.
func (m *LeaseMachine) Done(now int64, value []byte, err error) []Message {
	op, sent := m.op, m.sentAt
	if op == NoOperation || m.ended != Outside {
		return m.flush(now)
	}
	m.op, m.asked, m.trip = NoOperation, false, now-sent
	switch {
	case err == ErrConflict:
		m.fails = 0
		// Those that have lost with this life pause, too, and each for another time, by Fibonacci
		// hashing. A renewal may wait for that, so it is short.
		window := min(m.pause()<<m.losses, m.cfg.Lease/leases.Retry)
		m.stale, m.loadAt = true, now+int64((m.cfg.Life+uint64(m.losses))*0x9e3779b97f4a7c15>>24%uint64(window))
		m.losses = min(m.losses+1, maxFails)
	case err != nil:
		m.unsure = m.unsure || op == Swap
		m.stale, m.loadAt = true, now+min(minPause<<m.fails, m.cfg.Lease/leases.Retry)
		for i := range m.peers {
			if m.fails > 0 { // in a row: this life may be cut off from the members, too
				m.peers[i].awayAt = never
			}
		}
		m.fails = min(m.fails+1, maxFails)
	case op == Live:
		if m.begun, m.proof = true, string(value); !isProof(m.proof) {
			m.stop(dmutex.Misuse("membership: the store names a life " + strconv.Quote(m.proof) + ", not with 1 to 64 letters and digits"))
		}
	case op == Swap:
		m.losses = 0
		m.answered(now, sent)
		if m.leaving && m.next.number(m.cfg.Life) == dmutex.None { // nobody would report to them
			m.sendAll(Message{Kind: Decide, View: View{Epoch: m.next.Epoch}})
		}
		m.learn(now, sent, m.next)
	default:
		m.stale, m.unsure = false, false
		m.answered(now, sent)
		m.loaded(now, sent, value)
	}
	return m.flush(now)
}

// answered notes that the store has answered. From then on the silence of a peer counts: before,
// this life may have been cut off from both.
func (m *LeaseMachine) answered(now, sent int64) {
	m.fails = 0
	for i := range m.peers {
		if p := &m.peers[i]; !p.here && p.awayAt == never && p.since <= sent {
			p.awayAt = now
		}
	}
}

func (m *LeaseMachine) loaded(now, sent int64, value []byte) {
	r, epoch := Record{}, m.record.Epoch
	err := r.UnmarshalText(value)
	switch {
	case len(value) == 0 && epoch > 0:
		m.stop(badRecord("it is gone, and its last epoch was " + m.epoch() + ": stop all members, and start them again"))
	case len(value) == 0:
	case err != nil:
		m.stop(err)
	default:
		m.learn(now, sent, r)
	}
	if m.vain = min(m.vain+1, maxFails); !m.prompted || m.record.Epoch != epoch {
		m.vain = 0
	}
}

// mayAct lets the view act if nothing is missing.
func (m *LeaseMachine) mayAct(now int64) {
	for range 2 { // later exclusions do not delay what is due
		if m.due <= m.cleared {
			m.due, m.dueSince = m.record.Unclean, m.since
		}
		if m.due > m.cleared && now >= m.dueSince+m.wait {
			m.clear(m.due)
		}
	}
	if m.cleared >= m.record.Unclean {
		m.wait = m.drain
	}
	if m.mayComplete() {
		var told []*Past
		for _, r := range m.reports {
			told = append(told, r.past)
		}
		m.recall(told, m.record.Unclean, m.cleared)
	}
	if m.isComplete() && m.cleared >= m.blind && now < m.LeaseEnd() {
		m.acting = true
	}
}

// clear ends the wait for an exclusion, and tells the others.
func (m *LeaseMachine) clear(epoch uint64) {
	m.cleared = epoch
	m.sendAll(Message{Kind: Cleared, Cleared: epoch})
}

// Living tells the machine the names of all lives of the store that had begun when the driver
// asked, and were not over when the store answered. When it asked, the machine had shown it a
// record with that last exclusion.
//
// If members of the record are all that live, that exclusion is cleared: a life that was excluded
// by then had begun its life of the store before it joined, so before the driver asked. It is
// never a member again, and the answer does not have it, so it holds nothing any more. Lives
// without one of the store must be cleared by a wait. A life that lives holds nothing, either, if
// it has left, or was excluded in an epoch that is cleared: a process that is stopped for long
// keeps nobody waiting twice. A life that is about to join a new record has begun its own, so the
// others wait until it has joined.
func (m *LeaseMachine) Living(now int64, unclean uint64, names []string) []Message {
	harmless := func(name string) bool {
		return slices.ContainsFunc(m.record.Members, func(e Entry) bool { return e.Proof == name }) ||
			slices.ContainsFunc(m.gone, func(g gone) bool { return g.proof == name && g.unclean <= m.cleared })
	}
	if unclean > m.cleared && m.record.Unproved <= m.cleared && m.ended == Outside &&
		!slices.ContainsFunc(names, func(name string) bool { return !harmless(name) }) {
		m.clear(unclean)
	}
	return m.flush(now)
}

// A gone is a life of the store whose member was excluded in this epoch or before, or has left.
type gone struct {
	proof   string
	unclean uint64
}

// part notes who is no member of a record any more.
func (m *LeaseMachine) part(r *Record) {
	for _, e := range m.record.Members {
		if e.Proof != "" && r.number(e.Life) == dmutex.None {
			m.gone = append(slices.Clone(m.gone[max(len(m.gone)-MaxMembers+1, 0):]), gone{e.Proof, r.Unclean})
		}
	}
}
