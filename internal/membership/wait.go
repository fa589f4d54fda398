package membership

// This file is rule 5.4: the wait for the leases of lives that were excluded.

// mayAct lets the view act if nothing is missing.
func (m *LeaseMachine) mayAct(now int64) {
	if m.ended != Outside {
		return
	}
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
	if m.isComplete() && !m.acting && m.cleared >= m.blind && now < m.LeaseEnd() {
		m.acting = true
	}
}

// clear ends the wait for an exclusion, and tells the others.
func (m *LeaseMachine) clear(epoch uint64) {
	m.cleared = epoch
	for i := range m.peers {
		m.send(&m.peers[i], Message{Kind: Cleared, Cleared: epoch})
	}
}
