package mail

// Busy makes Close wait until f returns.
func (m *Mail) Busy(f func()) { m.running.Go(f) }

// FullPeers returns how many peers are counted as full.
func (m *Mail) FullPeers() int { return int(m.full.Load()) }
