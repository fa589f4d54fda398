package group

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/dmutex/dmutex"
)

// now also tells the machine how long the computer has slept.
func (l *record) now() int64 {
	now, slept := l.time.Read()
	leapt := slept - l.slept
	l.slept = slept
	l.Leapt(leapt)
	if l.giveAt != math.MaxInt64 {
		l.giveAt += leapt // the holder has slept, too, or the clock was set
	}
	l.check(now)
	return now
}

// until returns the time to which the locks may go by the lease.
func (l *record) until() int64 {
	if l.idle() || l.Self() == dmutex.None {
		return math.MinInt64
	}
	return l.LeaseEnd() - l.margin
}

// check ends what is held if the lease has ended, before an input may extend the lease.
func (l *record) check(now int64) {
	g := l.group
	if g.Locks.Why() != nil { // what was held has ended with that
		l.giveAt = math.MaxInt64
		l.set(now)
		return
	}
	if now >= l.giveAt {
		l.giveBack()
	}
	if now >= l.until() && g.covered() {
		why := ErrLease
		if l.err != nil {
			why = fmt.Errorf("%w: %w", ErrLease, l.err)
		}
		l.end(now, why)
		g.Log(slog.LevelError, "lease ended: all locks are lost", slog.Any("err", why))
	}
}

// end ends what is held, for the reason given.
func (l *record) end(now int64, why error) {
	g := l.group
	g.Locks.SetUntil(l.until()) // first, so that no grant slips in after the loss
	l.giveAt = now + l.margin
	g.pause(now)
	g.Locks.Lapse(why)
	l.set(now)
}

// giveBack releases lost holds.
func (l *record) giveBack() {
	l.giveAt = math.MaxInt64
	g := l.group
	if holds := g.Locks.GiveBack(); len(holds) > 0 {
		g.running.Go(func() {
			for _, h := range holds {
				g.Ended(h)
			}
		})
	}
}

// set notes how the lease stands, and reports it if that has changed.
func (l *record) set(now int64) {
	g := l.group
	state := leaseValid
	switch {
	case now >= l.until():
		state = leaseEnded
	case l.Suspended():
		state = leaseLate
	}
	if g.state.Swap(state) == state {
		return
	}
	lease := l.lease(now)
	if state == leaseLate {
		g.Log(slog.LevelWarn, "lease is late to be renewed", slog.Duration("remains", lease.Remains), slog.Any("err", l.err))
	}
	g.cfg.Up.Lease(*lease)
}

func (l *record) lease(now int64) *Lease {
	lease := &Lease{State: l.group.state.Load().(string), Err: l.err, Exclusions: l.Exclusions()}
	if l.group.covered() {
		lease.Remains = time.Duration(l.until() - now)
	}
	return lease
}
