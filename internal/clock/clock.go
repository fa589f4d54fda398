// Package clock is a clock that counts the sleep of the machine.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Clock counts nanoseconds since it was made, and goes on while the machine sleeps.
// Go's monotonic clock may stand still then, but the wall clock does not. So when the
// wall clock has run ahead of the monotonic one, the Clock takes that for sleep: a
// lease may end too soon, when an operator sets the clock, but not too late.
type Clock struct {
	birth time.Time
	ahead atomic.Int64 // of the wall clock, when it was looked at last
	slept atomic.Int64

	mu sync.Mutex // guards changes of both
}

// drift is how far the wall clock may move against the monotonic one before that counts
// as a sleep, or as a change of the clock.
const drift = int64(10 * time.Millisecond)

// New returns a clock that stands at 0.
func New() *Clock { return &Clock{birth: time.Now()} }

// Now returns the time.
func (c *Clock) Now() int64 {
	now, _ := c.Read()
	return now
}

// Read returns the time, and how much of it was sleep.
func (c *Clock) Read() (now, slept int64) {
	t := time.Now()
	return c.at(int64(t.Sub(c.birth)), t.UnixNano()-c.birth.UnixNano())
}

// at is read after so much by the monotonic clock, and by the wall clock.
func (c *Clock) at(passed, wall int64) (now, slept int64) {
	ahead := wall - passed
	if moved := ahead - c.ahead.Load(); moved > drift || moved < -drift {
		c.mu.Lock()
		if moved = ahead - c.ahead.Load(); moved > drift {
			c.slept.Add(moved)
		}
		c.ahead.Store(ahead)
		c.mu.Unlock()
	}
	slept = c.slept.Load()
	return passed + slept, slept
}

// StepWall acts as if the wall clock had been set forward. Only tests call it.
func (c *Clock) StepWall(d time.Duration) { c.ahead.Add(-int64(d)) }
