package storm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/kit/stall"
)

// A Referee judges grants. It relies on nothing that locks say but on this: a hold whose Err is nil is good, and so is one
// whose context has not ended. So no two holds of a lock are good at one time, unless both share it; fences rise, but
// for those of sharers among each other; a hold is good no longer than its Until, and nobody else has the lock before
// that and for a margin after it, unless it is given back.
type Referee struct {
	mu     sync.Mutex
	wrong  func(format string, args ...any)
	note   func(format string, args ...any)
	inside map[string][]*Stay
	last   map[string][2]uint64 // the highest fences of those that had it alone, and that shared it
	grants map[string]int       // by process
	count  int
}

// A Stay is the time from a grant to the release.
type Stay struct {
	Who, Lock string
	Fence     uint64
	Shared    bool
	Hold      interface{ Err() error } // a handle, or a context that ends with the hold
	Margin    time.Duration            // for so long after its Until nobody else has the lock, unless it is given back
	Gives     func(err error) bool     // after which losses it is given back at once

	ctx   context.Context // of the hold, once somebody has asked for it: unless asked before, it does not exist
	until time.Time       // the latest that it has promised
}

// Judge judges a grant and the stay, in which f is called. A hold that has ended before is not counted.
func (r *Referee) Judge(s Stay, f func()) {
	good := false
	stall.Quiet(func() { good = r.enter(&s) })
	if good {
		f()
		stall.Quiet(func() { r.leave(&s) })
	}
}

func (r *Referee) enter(s *Stay) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inside == nil {
		r.inside, r.last = make(map[string][]*Stay), make(map[string][2]uint64)
		r.grants = make(map[string]int)
	}
	var wrong []string
	says := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	now := time.Now()
	for _, o := range r.inside[s.Lock] {
		open := o.ctx != nil && o.ctx.Err() == nil // first: Err notices what a context must notice by itself
		switch lost := r.look(o); {
		case s.Shared && o.Shared:
		case !lost:
			says("%s and %s hold %s, with the fences %x and %x", o.Who, s.Who, s.Lock, o.Fence, s.Fence)
		case open:
			says("%s holds %s with the fence %x, and the context of %s has not ended, though its hold says: %v", s.Who, s.Lock, s.Fence, o.Who, o.Hold.Err())
		case !o.until.IsZero() && o.until.Add(o.Margin).After(now) && (o.Gives == nil || !o.Gives(o.Hold.Err())):
			says("%s holds %s %v too early: %s has not given it back, and its Until and a margin have not passed: %v", s.Who, s.Lock, o.until.Add(o.Margin).Sub(now), o.Who, o.Hold.Err())
		}
	}
	last := r.last[s.Lock]
	if s.Fence <= last[0] || !s.Shared && s.Fence <= last[1] {
		says("%s holds %s with the fence %x, after %x, and %x of those that shared it", s.Who, s.Lock, s.Fence, last[0], last[1])
	}
	if s.Hold.Err() != nil { // last: where a goroutine stalls that has a mutex, a look at another hold may take time
		return false
	}
	for _, w := range wrong {
		r.wrong("%s", w)
	}
	kind := 0
	if s.Shared {
		kind = 1
	}
	last[kind] = max(last[kind], s.Fence)
	r.last[s.Lock], r.inside[s.Lock] = last, append(r.inside[s.Lock], s)
	r.note("%s has %s, with the fence %x", s.Who, s.Lock, s.Fence)
	r.grants[s.Who]++
	r.count++
	switch h := s.Hold.(type) {
	case context.Context:
		s.ctx = h
	case interface{ Context() context.Context }:
		s.ctx = h.Context()
	}
	r.look(s)
	return true
}

// look reports whether the hold is lost. A hold that is good is so until its Until.
func (r *Referee) look(s *Stay) (lost bool) {
	until, now := time.Time{}, time.Now()
	if h, ok := s.Hold.(interface{ Until() time.Time }); ok {
		until = h.Until()
	}
	if s.Hold.Err() != nil {
		return true
	}
	if !until.IsZero() && until.Before(now) {
		r.wrong("%s still holds %s %v after its Until", s.Who, s.Lock, now.Sub(until))
	}
	if until.After(s.until) {
		s.until = until
	}
	return false
}

// Promised notes until when the holder has learned that it holds a lock. Unlike the referee it may stall while it asks.
func (r *Referee) Promised(who, lock string, fence uint64, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.inside[lock] {
		if s.Who == who && s.Fence == fence && until.After(s.until) {
			s.until = until
		}
	}
}

// Look looks at all holds of a lock, as somebody does who asks for it: a hold that was renewed has promised more.
func (r *Referee) Look(lock string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stall.Quiet(func() {
		for _, s := range r.inside[lock] {
			r.look(s)
		}
	})
}

// LookAll looks at all holds, and whether some are good together that must not be: what a process says that was away for a
// while counts again.
func (r *Referee) LookAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	stall.Quiet(func() {
		for _, lock := range slices.Sorted(maps.Keys(r.inside)) {
			all := r.inside[lock]
			for i, s := range all {
				for _, o := range all[:i] {
					if (!s.Shared || !o.Shared) && !r.look(o) && !r.look(s) && !r.look(o) { // a look may take time
						r.wrong("%s and %s hold %s, with the fences %x and %x", o.Who, s.Who, lock, o.Fence, s.Fence)
					}
				}
			}
		}
	})
}

func (r *Referee) leave(s *Stay) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.look(s)
	r.note("%s gives %s back", s.Who, s.Lock)
	all := r.inside[s.Lock]
	for i, o := range all {
		if o == s {
			r.inside[s.Lock] = append(all[:i:i], all[i+1:]...)
		}
	}
}

// Grants returns how often a process was granted a lock.
func (r *Referee) Grants(who string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.grants[who]
}

// Count returns how many grants were judged.
func (r *Referee) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}
