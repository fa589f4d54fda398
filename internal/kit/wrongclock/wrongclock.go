// Package wrongclock has clocks for simulated processes: their rates are wrong, their machines sleep, and somebody
// sets the time of day. They run by the time of the test, in a bubble by the bubble's. What a process draws has a seed.
package wrongclock

import (
	"math/big"
	"math/rand/v2"
	"sync"
	"time"
)

// A Clock is the clock.Source of a process.
type Clock struct {
	mu     sync.Mutex
	luck   *rand.Rand
	ppm    int64 // how much too fast it is
	seen   time.Time
	steady int64 // when it was seen
	wall   int64
	sleeps time.Time // until then
}

// New returns a clock that is too fast by so many millionths: 10,000 is 1 %. Its time of day is right.
func New(seed uint64, ppm int64) *Clock {
	now := time.Now()
	return &Clock{luck: rand.New(rand.NewPCG(seed, 0)), ppm: ppm, seen: now, wall: now.UnixNano()}
}

// see lets the time pass.
func (c *Clock) see() {
	now := time.Now()
	awake := c.seen
	if c.sleeps.After(awake) {
		if awake = c.sleeps; awake.After(now) {
			awake = now
		}
	}
	c.wall += int64(awake.Sub(c.seen))
	ran := int64(now.Sub(awake))
	ran += ran * c.ppm / 1_000_000
	c.steady += ran
	c.wall += ran
	c.seen = now
}

// Read implements clock.Source. Code that runs on in a sleep gets another time each time, by a nanosecond: so a reader that
// is late is told from one that has read later, as on a machine, where no code runs while the monotonic clock stands.
func (c *Clock) Read() (steady, wall int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.see(); c.sleeps.After(c.seen) {
		c.steady++
	}
	return c.steady, c.wall
}

// Span implements clock.Source. It adds what is left of a sleep; of one that begins later it knows nothing.
func (c *Clock) Span(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if d <= 0 || d > 1<<60 {
		return d
	}
	if c.ppm != 0 {
		x := new(big.Int).Mul(big.NewInt(int64(d)), big.NewInt(1_000_000))
		d = time.Duration(x.Div(x, big.NewInt(1_000_000+c.ppm)).Int64()) + time.Microsecond // so that no timer is early
	}
	return d + max(time.Until(c.sleeps), 0)
}

// UpTo implements clock.Source.
func (c *Clock) UpTo(d time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration(c.luck.Int64N(int64(d)))
}

// Drift makes the clock too fast by so many millionths from now on. Timers that run end as they would have.
func (c *Clock) Drift(ppm int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.see()
	c.ppm = ppm
}

// Step sets the wall clock forward, or back.
func (c *Clock) Step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.see()
	c.wall += int64(d)
}

// Sleep lets the machine sleep from now on: the monotonic clock stands, and the wall clock goes on. The code
// of the process runs on, and its present timers end. So cut it off meanwhile, and make no call.
func (c *Clock) Sleep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.see()
	c.sleeps = c.seen.Add(d)
}
