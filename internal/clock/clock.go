// Package clock has the two clocks of a process, and a type for the instants of one of them.
//
// [Clock.Now] may run ahead of what has passed: it counts the sleep of the machine, and what the wall clock
// was set forward by. What this process may hold ends by it. [Clock.Steady] may fall behind: it stands still
// while the machine sleeps, and nobody can set it. What another process may hold has ended for sure when so
// much has passed by it. An instant of one clock says nothing about the other, so the second has a type that
// is made of nothing else: a comparison of both does not compile.
package clock

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// A Clock counts nanoseconds since it was made, and goes on while the machine sleeps. Go's monotonic clock may stand
// still then, but the wall clock does not. So it counts as sleep when the wall clock has run ahead of the monotonic one: a
// lease may end too soon, when an operator sets the clock, but not too late. Linux knows how long the machine has slept
// even if the wall clock was set back meanwhile, but not how long a host has stopped a virtual machine. So the larger of
// the two counts.
type Clock struct {
	from   Source
	begun  int64        // the monotonic clock at the birth
	birth  int64        // the wall clock then
	ahead  atomic.Int64 // of the wall clock, when it was looked at last
	slept  atomic.Int64
	asleep func() int64 // how long the machine has slept since the birth, nil if only the wall clock tells; takes microseconds

	mu     sync.Mutex // guards changes of the fields
	kernel int64      // what asleep returned when it counted last
	looked int64      // by the monotonic clock, when look was called last
}

// drift is how far the wall clock may move against the monotonic one before that counts as a sleep, or as a change.
const drift = int64(10 * time.Millisecond)

// New returns a clock that stands at 0.
func New() *Clock {
	c := &Clock{from: machine{time.Now()}, asleep: sleepMeter()}
	if sim := simulated.Load(); sim != nil {
		c.from, c.asleep = *sim, nil
	}
	c.begun, c.birth = c.from.Read()
	return c
}

// A Source is what a process can learn of time, and by chance.
type Source interface {
	// Read returns the monotonic clock and the wall clock, in nanoseconds, the second since 1970.
	Read() (steady, wall int64)

	// Span returns how long a timer of this program must run until so much has passed by the monotonic clock.
	Span(time.Duration) time.Duration

	// UpTo draws a duration of at least 0 and less than the given one.
	UpTo(time.Duration) time.Duration
}

// A machine is the one that the program runs on.
type machine struct{ begun time.Time }

func (m machine) Read() (steady, wall int64) {
	t := time.Now()
	return int64(t.Sub(m.begun)), t.UnixNano()
}

func (machine) Span(d time.Duration) time.Duration { return d }
func (machine) UpTo(d time.Duration) time.Duration { return rand.N(d) }

var simulated atomic.Pointer[Source] // nil for the clocks of the machine

// Simulate lets New take its time from there until it is called again; nil is the machine. Only package outside calls it.
func Simulate(s *Source) { simulated.Store(s) }

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
		c.look(passed, wall-passed)
	}
	return c.at(passed, wall)
}

// pair returns what has passed by the monotonic clock, and by the wall clock.
func (c *Clock) pair() (passed, wall int64) {
	steady, wall := c.from.Read()
	return steady - c.begun, wall - c.birth
}

// at returns what Read does when the monotonic clock and the wall clock have passed so much.
func (c *Clock) at(passed, wall int64) (now, slept int64) {
	if moved := wall - passed - c.ahead.Load(); moved > drift || moved < -drift {
		c.look(passed, wall-passed)
	}
	slept = c.slept.Load()
	return passed + slept, slept
}

// look finds out whether the machine has slept. ahead is the wall clock's lead at that time.
func (c *Clock) look(passed, ahead int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if passed < c.looked { // another goroutine has read the clocks since, and one step would count as two
		return
	}
	c.looked = passed
	step, kernel := ahead-c.ahead.Load(), int64(0)
	if c.asleep != nil {
		kernel = c.asleep()
	}
	slept := max(step, kernel-c.kernel)
	if slept > drift {
		c.slept.Add(slept)
	}
	if slept > drift || step < -drift { // less adds up
		c.ahead.Store(ahead)
		c.kernel = kernel
	}
}

// Steady returns the time by the steady clock.
func (c *Clock) Steady() Steady {
	if m, ok := c.from.(machine); ok { // it need not read the wall clock
		return Steady{int64(time.Since(m.begun)) - c.begun}
	}
	passed, _ := c.pair()
	return Steady{passed}
}

// Wall returns the time of day, in nanoseconds since 1970.
func (c *Clock) Wall() int64 {
	_, wall := c.from.Read()
	return wall
}

// Span returns how long a timer must run until d has passed by the monotonic clock: d, unless that is simulated.
func (c *Clock) Span(d time.Duration) time.Duration { return c.from.Span(d) }

// UpTo draws a duration of at least 0 and less than d, so that processes that begin something at once do not go on together.
func (c *Clock) UpTo(d time.Duration) time.Duration { return c.from.UpTo(d) }

// A Steady is an instant of the steady clock of a [Clock], and comparable with others of that one.
type Steady struct{ age int64 }

// Age returns how long before that its clock was made.
func (s Steady) Age() time.Duration { return time.Duration(s.age) }

// Sub returns how long before that t was.
func (s Steady) Sub(t Steady) time.Duration { return time.Duration(s.age - t.age) }

// Add returns the instant so much later.
func (s Steady) Add(d time.Duration) Steady { return Steady{s.age + int64(d)} }

// After reports whether t was earlier.
func (s Steady) After(t Steady) bool { return s.age > t.age }

// Latest returns the later of two instants.
func Latest(s, t Steady) Steady { return Steady{max(s.age, t.age)} }

// StepWall acts as if the wall clock had been set forward. Only tests call it.
func (c *Clock) StepWall(d time.Duration) { c.ahead.Add(-int64(d)) }
