package world

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
)

// A process is paused, or its machine sleeps. Its code runs on here, but nothing leaves the process and nothing gets in
// until it goes on, and then what has waited arrives. While a machine sleeps, its monotonic clock stands, and what the
// process says does not count: its code would not run.

var errAsleep = errors.New("its machine sleeps")

// away returns why what the process says does not count, nil if it does.
func (p *process) away() error {
	switch {
	case p.dead.Load():
		return errDead
	case p.asleep.Load():
		return errAsleep
	}
	return nil
}

// drowsy returns why a context of the process may go on though its hold has ended, nil if it may not: after a sleep that
// is seen within a second.
func (p *process) drowsy() error {
	if woke := p.wakes.Load(); woke != nil && time.Since(*woke) < 1020*time.Millisecond {
		return errAsleep
	}
	return p.away()
}

// took returns how much time has passed since then for the process, whose machine may have slept.
func (p *process) took(since time.Time) time.Duration {
	if woke := p.wakes.Load(); woke != nil && woke.After(since) {
		since = *woke
	}
	return max(time.Since(since), 0)
}

// waits blocks while the process is paused, or until something ends that.
func (p *process) waits(over <-chan struct{}) { blocks(&p.still, over) }

// hears reports whether something gets in.
func (p *process) hears() bool { return p.still.Load() == nil && p.ears.Load() == nil }

func blocks(gate *atomic.Pointer[chan struct{}], over <-chan struct{}) {
	if shut := gate.Load(); shut != nil {
		select {
		case <-*shut:
		case <-over:
		}
	}
}

// pause stops what goes in and out, until resume.
func (p *process) pause() {
	p.still.CompareAndSwap(nil, new(make(chan struct{})))
	switch {
	case p.socket != nil:
		p.socket.Pause()
	case p.way != nil:
		p.way.Pause()
	case p.node != nil:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.number = p.node.Self(); p.number != dmutex.None {
			p.w.net.Pause(p.number)
		}
	}
}

// resume ends a pause.
func (p *process) resume() {
	switch {
	case p.socket != nil:
		p.socket.Resume()
	case p.way != nil:
		p.way.Resume()
	}
	p.mu.Lock()
	if p.number != dmutex.None {
		p.w.net.Resume(p.number)
		p.number = dmutex.None
	}
	p.mu.Unlock()
	if still := p.still.Swap(nil); still != nil {
		close(*still)
	}
}

// A span is how long a process is paused, and goes on after that.
type span struct{ still, runs time.Duration }

// pauses pauses a process again and again. A machine that sleeps does so once.
func (w *World) pauses(p *process, sleeps bool, spans ...span) {
	if !p.stalls.CompareAndSwap(false, true) {
		return
	}
	done := make(chan struct{})
	p.goes.Store(&done)
	w.running.Go(func() {
		defer p.stalls.Store(false)
		defer close(done)
		for _, s := range spans {
			if p.dead.Load() || p.ending.Load() {
				return
			}
			if p.pause(); sleeps {
				p.wakes.Store(new(time.Now().Add(s.still)))
				p.asleep.Store(true)
				p.clock.Sleep(s.still)
			}
			time.Sleep(s.still)
			if p.asleep.Store(false); !p.dead.Load() {
				p.resume()
			}
			w.LookAll()
			if time.Sleep(s.runs); sleeps {
				w.LookAll()
			}
		}
	})
}

// goesOn waits until a process is paused no more.
func (p *process) goesOn() {
	if done := p.goes.Load(); done != nil {
		<-*done
	}
}

// stutters pauses a process some times, for long or for a moment.
func (w *World) stutters(p *process) {
	var spans []span
	for range 1 + w.Luck.IntN(6) {
		spans = append(spans, span{
			w.UpTo([]time.Duration{leaseOf / 100, leaseOf / 3, leaseOf * 3 / 2}[w.Luck.IntN(3)]),
			w.UpTo([]time.Duration{time.Millisecond, leaseOf / 100, leaseOf / 3}[w.Luck.IntN(3)]),
		})
	}
	w.pauses(p, false, spans...)
}

// sleeps lets the machine of a process sleep.
func (w *World) sleeps(p *process) {
	w.pauses(p, true, span{1 + w.UpTo([]time.Duration{leaseOf / 10, leaseOf, leaseOf * 2}[w.Luck.IntN(3)]), 1100 * time.Millisecond})
}
