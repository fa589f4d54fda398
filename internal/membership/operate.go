package membership

import (
	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
)

// This file has the operations on the store of a [LeaseMachine]: when they are begun, and
// their outcomes.

func (m *LeaseMachine) begin(now int64, op Operation) { m.op, m.sentAt = op, now }

// nextLoad returns when the record is to be loaded.
func (m *LeaseMachine) nextLoad() int64 {
	switch {
	case m.stale:
		return m.loadAt
	case m.self != dmutex.None:
		return min(m.hintAt, m.renewAt)
	default:
		return m.hintAt
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
	sent, epoch := m.finish(now), m.record.Epoch
	m.stale, m.unsure, m.fails = false, false, 0
	m.answered(now, sent)
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
	sent := m.finish(now)
	m.fails, m.losses = 0, 0
	m.answered(now, sent)
	if m.leaving && m.next.number(m.cfg.Life) == dmutex.None { // nobody would report to them
		for i := range m.peers {
			m.send(&m.peers[i], Message{Kind: Decide, View: View{Epoch: m.next.Epoch}})
		}
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

// answered notes that the store has answered an operation, from when on the silence of a peer
// counts: before that, this life may have been cut off from both.
func (m *LeaseMachine) answered(now, sent int64) {
	for i := range m.peers {
		if p := &m.peers[i]; !p.here && p.awayAt == never && p.since <= sent {
			p.awayAt = now
		}
	}
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
