package membership

import (
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

// Loaded takes the value that a load has read, which is empty if the store has none.
func (m *LeaseMachine) Loaded(now int64, value []byte) []Message {
	if m.op != Load || m.ended != Outside {
		return m.flush(now)
	}
	sent, epoch := m.answered(now), m.record.Epoch
	m.stale, m.unsure = false, false
	var r Record
	switch {
	case len(value) > 0:
		if err := r.UnmarshalText(value); err != nil {
			m.stop(err)
		} else {
			m.learn(now, sent, r)
		}
	case m.record.Epoch > 0:
		m.stop(badRecord("it is gone, and its last epoch was " + m.epoch() + ": stop all members, and start them again"))
	}
	if m.prompted && m.record.Epoch == epoch {
		m.vain = min(m.vain+1, maxFails)
	} else {
		m.vain = 0
	}
	return m.flush(now)
}

// Swapped tells the machine that a swap has been done.
func (m *LeaseMachine) Swapped(now int64) []Message {
	if m.op != Swap || m.ended != Outside {
		return m.flush(now)
	}
	sent := m.answered(now)
	m.losses = 0
	if m.leaving && m.next.number(m.cfg.Life) == dmutex.None { // nobody would report to them
		m.sendAll(Message{Kind: Decide, View: View{Epoch: m.next.Epoch}})
	}
	m.learn(now, sent, m.next)
	return m.flush(now)
}

// Conflict tells the machine that a swap was not done, because the record has changed.
func (m *LeaseMachine) Conflict(now int64) []Message {
	if m.op == Swap {
		m.finish(now)
		m.fails = 0
		// Those that have lost with this life pause, too, and each for another time.
		// A renewal may wait for that, so it is short.
		window := min(m.pause()<<m.losses, m.cfg.Lease/leases.Retry)
		m.stale, m.loadAt = true, now+int64(mix(m.cfg.Life+uint64(m.losses))%uint64(window))
		m.losses = min(m.losses+1, maxFails)
	}
	return m.flush(now)
}

// Unknown tells the machine that an operation has failed, or was not answered in time.
func (m *LeaseMachine) Unknown(now int64) []Message {
	if m.op != NoOperation {
		m.unsure = m.unsure || m.op == Swap
		m.finish(now)
		m.stale, m.loadAt = true, now+min(minPause<<m.fails, m.cfg.Lease/leases.Retry)
		for i := range m.peers {
			if m.fails > 0 { // in a row: this life may be cut off from the members, too
				m.peers[i].awayAt = never
			}
		}
		m.fails = min(m.fails+1, maxFails)
	}
	return m.flush(now)
}

// Begun tells the machine the name of the life that a Live has begun, which is empty if the
// store proves nothing. The driver ends that life of the store when this one is no member any
// more, or is Stopped, and its lease has ended, or all that it held was released.
func (m *LeaseMachine) Begun(now int64, proof string) []Message {
	if m.op == Live && m.ended == Outside {
		m.finish(now)
		if m.begun, m.proof = true, proof; !isProof(proof) {
			m.stop(dmutex.Misuse("membership: the store names a life " + strconv.Quote(proof) + ", not with 1 to 64 letters and digits"))
		}
	}
	return m.flush(now)
}

// answered ends a load or a swap that the store has answered, and returns when it was asked for.
// From that on the silence of a peer counts: before, this life may have been cut off from both.
func (m *LeaseMachine) answered(now int64) (sent int64) {
	sent, m.fails = m.finish(now), 0
	for i := range m.peers {
		if p := &m.peers[i]; !p.here && p.awayAt == never && p.since <= sent {
			p.awayAt = now
		}
	}
	return sent
}

// finish ends the operation under way, and returns when it was asked for.
func (m *LeaseMachine) finish(now int64) (sent int64) {
	m.op, m.asked = NoOperation, false
	m.trip = now - m.sentAt
	return m.sentAt
}

// mix spreads a number over 64 bits.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
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
