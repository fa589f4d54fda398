package group

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A clock counts nanoseconds since it was made, and goes on while the machine sleeps.
// Go's monotonic clock may stand still then, but the wall clock does not. So when the
// wall clock has run ahead of the monotonic one, the clock takes that for sleep: a
// lease may end too soon, when an operator sets the clock, but not too late.
type clock struct {
	birth time.Time
	ahead atomic.Int64 // of the wall clock, when it was looked at last
	slept atomic.Int64

	mu sync.Mutex // guards changes of both
}

// drift is how far the wall clock may move against the monotonic one before that counts
// as a sleep, or as a change of the clock.
const drift = int64(10 * time.Millisecond)

func newClock() *clock { return &clock{birth: time.Now()} }

func (c *clock) now() int64 {
	now, _ := c.read()
	return now
}

// read returns the time, and how much of it was sleep.
func (c *clock) read() (now, slept int64) {
	t := time.Now()
	return c.at(int64(t.Sub(c.birth)), t.UnixNano()-c.birth.UnixNano())
}

// at is read after so much by the monotonic clock, and by the wall clock.
func (c *clock) at(passed, wall int64) (now, slept int64) {
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
func (g *Group) StepWall(d time.Duration) { g.who.(*record).time.ahead.Add(-int64(d)) }

// drawLife names a life of this process: by its wall clock in steps of 1<<bits ns, so that
// it is probably higher than former ones, and random bits below. It is higher than above.
func drawLife(above uint64, bits int) uint64 {
	random := 1 + rand.Uint64N(1<<bits-1)
	return max(uint64(max(sinceEpoch(), 0))>>bits<<bits|random, above+random)
}

// maxLife returns the highest life that is believed: some clock may be wrong by a day, and
// one such life cannot lock a number out for longer.
func maxLife() uint64 { return uint64(max(sinceEpoch(), 0) + int64(24*time.Hour)) }

// sinceEpoch returns the nanoseconds since 2020-01-01 UTC by the wall clock.
func sinceEpoch() int64 { return int64(time.Since(epochZero)) }

// clockNow returns the clock of the machines of package membership.
func clockNow() uint64 { return uint64(max(sinceEpoch(), 0)) / uint64(time.Millisecond) }

var epochZero = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
