// Package clock is a clock that counts the sleep of the machine.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock counts nanoseconds since it was made, and goes on while the machine sleeps.
// Go's monotonic clock may stand still then, but the wall clock does not. So when the
// wall clock has moved against the monotonic one, the machine may have slept. Linux knows
// how long it has. Elsewhere, and in a bubble of testing/synctest, the Clock takes it for sleep
// when the wall clock has run ahead: a lease may end too soon, when an operator sets the
// clock, but not too late.
type Clock struct {
	birth  time.Time
	ahead  atomic.Int64 // of the wall clock, when it was looked at last
	slept  atomic.Int64
	asleep func() int64 // how long the machine has slept since the birth, nil if only the wall clock tells; takes microseconds

	mu sync.Mutex // guards changes of both
}

// drift is how far the wall clock may move against the monotonic one before that counts
// as a sleep, or as a change of the clock.
const drift = int64(10 * time.Millisecond)

// New returns a clock that stands at 0.
func New() *Clock { return &Clock{birth: time.Now(), asleep: sleepMeter()} }

// Now returns the time. It takes no system call unless the wall clock has moved.
func (c *Clock) Now() int64 {
	now, _ := c.at(c.pair())
	return now
}

// Read returns the time, and how much of it was sleep. Unlike Now it sees a sleep that the
// wall clock does not show, because it was set back by just as much.
func (c *Clock) Read() (now, slept int64) {
	passed, wall := c.pair()
	if c.asleep != nil {
		c.look(wall - passed)
	}
	return c.at(passed, wall)
}

// pair returns what has passed by the monotonic clock, and by the wall clock.
func (c *Clock) pair() (passed, wall int64) {
	t := time.Now()
	return int64(t.Sub(c.birth)), t.UnixNano() - c.birth.UnixNano()
}

// at is read after so much by the monotonic clock, and by the wall clock.
func (c *Clock) at(passed, wall int64) (now, slept int64) {
	if moved := wall - passed - c.ahead.Load(); moved > drift || moved < -drift {
		c.look(wall - passed)
	}
	slept = c.slept.Load()
	return passed + slept, slept
}

// look finds out whether the machine has slept, when the wall clock is so far ahead.
func (c *Clock) look(ahead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	slept := ahead - c.ahead.Load()
	c.ahead.Store(ahead)
	if c.asleep != nil {
		slept = c.asleep() - c.slept.Load()
	}
	if slept > drift {
		c.slept.Add(slept)
	}
}

// StepWall acts as if the wall clock had been set forward. Only tests call it.
func (c *Clock) StepWall(d time.Duration) { c.ahead.Add(-int64(d)) }
