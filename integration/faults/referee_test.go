//go:build unix

package faults

import (
	"maps"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dmutex/dmutex/lock"
)

// A stay is one critical section of a process, which says so when it begins and when it is over. The lock was held at
// the instants From and Until, and so between them: at both the handle was good. If it was never seen to be good, Until
// is before From.
type stay struct {
	Number      uint64 // tells the stays of a process apart
	Lock        string
	Process     int
	Fence       uint64
	Shared      bool // with others that share the lock
	From, Until int64
	Over        bool
	lost        bool
}

// instant returns the time of the clock that all processes of the machine share.
func instant() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}

// look reads the clock, then the handle. If the handle is good, it was good at the instant of the clock, too, because a
// loss is final. So the stay extends to that instant, however long this process was paused in between.
func (s *stay) look(held lock.Held) {
	now, err := instant(), held.Err()
	switch {
	case err != nil:
		s.lost = true
	case s.lost:
		fail("%s with fence %d: a lock that was lost is held again", s.Lock, s.Fence)
	default:
		s.Until = now
	}
}

// seen reports whether the holder is known to have had the lock at some instant.
func (s *stay) seen() bool { return s.From <= s.Until }

// A referee knows nothing of locks but what processes say of their stays. One that was killed, or is paused, may not know
// that its stay is over, so the referee judges by the handles: no two are good at one instant, and the later one
// has the higher fence.
type referee struct {
	mu    sync.Mutex
	stays map[string][]stay // by lock
	last  map[grant]int64   // when a process was granted a lock last, and when anybody was, which is process nil
}

type grant struct {
	to   *process
	lock string
}

func newReferee() *referee {
	return &referee{stays: make(map[string][]stay), last: make(map[grant]int64)}
}

// hear takes note of a stay that begins, or is over.
func (r *referee) hear(p *process, s stay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case p.replaced:
		if !s.Over {
			p.late = append(p.late, s)
		}
	case s.Over:
		delete(p.inside, s.Number)
		r.stays[s.Lock] = append(r.stays[s.Lock], s)
	default:
		p.inside[s.Number] = s
		if s.seen() {
			r.last[grant{p, s.Lock}], r.last[grant{nil, s.Lock}] = s.From, s.From
		}
	}
}

// gone notes that a process has ended, or that another one has replaced it: then only fences protect from it what the
// locks guard.
func (r *referee) gone(p *process, replaced bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range maps.Values(p.inside) {
		r.stays[s.Lock] = append(r.stays[s.Lock], s)
	}
	clear(p.inside)
	p.replaced = p.replaced || replaced
}

// granted returns when a process was granted a lock last, or when anybody was if the process is nil.
func (r *referee) granted(to *process, lock string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last[grant{to, lock}]
}

// holds returns a lock that the process has held for a while, if there is one.
func (r *referee) holds(p *process) (lock string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range p.inside {
		if s.seen() && !s.Shared && instant()-s.From > int64(20*time.Millisecond) {
			return s.Lock
		}
	}
	return ""
}

// fence returns the highest fence of a lock.
func (r *referee) fence(lock string) (highest uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stays[lock] {
		highest = max(highest, s.Fence)
	}
	return highest
}

// verdict says what is wrong with the stays in any lock, and how many there were.
func (r *referee) verdict() (stays int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for lock, all := range r.stays {
		if err := judgeHistory(lock, all); err != nil {
			return 0, err
		}
		stays += len(all)
	}
	return stays, nil
}
