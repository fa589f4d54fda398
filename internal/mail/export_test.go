package mail

import "time"

// StepWall acts as if the wall clock had been set forward.
func (m *Mail) StepWall(d time.Duration) { m.clock.StepWall(d) }

// Busy makes Close wait until f returns.
func (m *Mail) Busy(f func()) { m.running.Go(f) }
