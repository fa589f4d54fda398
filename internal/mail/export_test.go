package mail

// Busy makes Close wait until f returns.
func (m *Mail) Busy(f func()) { m.running.Go(f) }
