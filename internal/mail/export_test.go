package mail

// FullPeers returns how many peers are counted as full.
func (m *Mail) FullPeers() int { return int(m.full.Load()) }
