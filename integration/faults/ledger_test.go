//go:build unix

package faults

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// instant returns the time of the clock that all processes of the machine share.
func instant() int64 {
	var now unix.Timespec
	must(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
	return now.Nano()
}

// A stay is one critical section of a hand, with leases.
type stay struct {
	claim
	err  func() error // of the handle; nil if that cannot be told
	over bool         // the lock is lost
}

func (s *stay) begin() {
	s.From = instant()
	s.Until = s.From - 1
	s.look()
}

// look reads the clock, then the handle. If the handle is good, it was good at the instant of
// the clock, too, because a loss is final. So the stay extends to that instant, however long
// this process was paused in between.
func (s *stay) look() {
	if s.err == nil {
		return
	}
	now, err := instant(), s.err()
	switch {
	case err != nil:
		s.over = true
	case s.over:
		fail("%s: %s with fence %d: a lock that was lost is held again", s.Who, s.Lock, s.Fence)
	default:
		s.Until = now
	}
}

// A ledger is what a referee knows of groups with leases. A process may still claim to be inside
// when its lease has ended and another process has the lock. So a ledger judges by the handles:
// no two are good at one instant, and the later one has the higher fence.
type ledger struct {
	stays    map[string][]claim // by lock, ascending by fence, and then by who it is
	inside   map[string]claim
	granted  map[string]int64           // by lock: the last grant
	orphans  map[string]int64           // locks whose holder was killed, and when
	failover map[string][]time.Duration // by lock: from the death of a holder to the next grant
}

func newLedger() *ledger {
	return &ledger{
		stays: make(map[string][]claim), inside: make(map[string]claim),
		granted: make(map[string]int64), orphans: make(map[string]int64),
		failover: make(map[string][]time.Duration),
	}
}

func (l *ledger) judge(c claim) error {
	stays := l.stays[c.Lock]
	i, again := slices.BinarySearchFunc(stays, c, func(a, b claim) int {
		return cmp.Or(cmp.Compare(a.Fence, b.Fence), cmp.Compare(a.Who, b.Who), cmp.Compare(a.Turn, b.Turn))
	})
	switch {
	case again != c.Leave || slices.ContainsFunc(stays, func(s claim) bool { return s.Fence == c.Fence && s.Who != c.Who && s.conflicts(c) }):
		return fmt.Errorf("%s: %s has fence %d, which was used before: %v", c.Lock, c.Who, c.Fence, again)
	case again:
		stays[i] = c
	default:
		stays = slices.Insert(stays, i, c)
		l.stays[c.Lock] = stays
	}
	if l.inside[c.Lock] = c; c.Leave || c.Shared {
		delete(l.inside, c.Lock)
	}
	if !c.seen() {
		return nil
	}
	if !c.Leave && !c.Shared {
		l.granted[c.Lock] = c.From
		if died, orphan := l.orphans[c.Lock]; orphan && c.From > died {
			l.failover[c.Lock] = append(l.failover[c.Lock], time.Duration(c.From-died))
			delete(l.orphans, c.Lock)
		}
	}
	for j := i - 1; j >= 0; j-- { // back to one that held it alone: that is apart from all before it
		if s := stays[j]; s.seen() && s.conflicts(c) {
			if err := apart(s, c); err != nil {
				return err
			}
		}
		if stays[j].seen() && !stays[j].Shared {
			break
		}
	}
	for _, later := range stays[i+1:] {
		if later.seen() && later.conflicts(c) {
			if err := apart(c, later); err != nil {
				return err
			}
		}
		if later.seen() && !later.Shared {
			break
		}
	}
	return nil
}

// apart says what is wrong with two stays. The second has the higher fence.
func apart(low, high claim) error {
	switch {
	case low.Until < high.From:
		return nil
	case high.Until < low.From:
		return fmt.Errorf("%s: inversion: %s has fence %d, %v after %s had %d", low.Lock, low.Who, low.Fence, time.Duration(low.From-high.Until), high.Who, high.Fence)
	default:
		return fmt.Errorf("%s: overlap: for %v %s held it with fence %d and %s with %d", low.Lock, time.Duration(min(low.Until, high.Until)-max(low.From, high.From)), low.Who, low.Fence, high.Who, high.Fence)
	}
}

// gone notes that the process of a holder was killed.
func (l *ledger) gone(c claim) {
	if l.inside[c.Lock] == c {
		delete(l.inside, c.Lock)
		l.orphans[c.Lock] = instant()
	}
}

// The ledger notices exactly the faults that it watches for.
func TestLedger(t *testing.T) {
	enter := func(who string, fence uint64, from int64) claim {
		return claim{Lock: "x", Who: who, Fence: fence, From: from, Until: from}
	}
	leave := func(c claim, until int64) claim {
		c.Leave, c.Until = true, until
		return c
	}
	share := func(c claim) claim { c.Shared = true; return c }
	one, two := enter("one", 1, 10), enter("two", 2, 20)
	for _, tc := range []struct {
		says   string
		claims []claim
	}{
		{"", []claim{one, leave(one, 15), two, leave(two, 25)}},
		{"", []claim{one, two, leave(two, 25), leave(one, 19)}},                    // one was paused, and lost the lock
		{"", []claim{two, one}},                                                    // one was paused before it spoke
		{"", []claim{two, {Lock: "x", Who: "one", Fence: 1, From: 30, Until: 29}}}, // one had lost the lock before
		{"overlap", []claim{one, two, leave(one, 20)}},
		{"overlap", []claim{two, leave(two, 25), one, leave(one, 30)}},
		{"inversion", []claim{two, leave(two, 25), enter("one", 1, 26)}},
		{"used before", []claim{one, leave(one, 11), enter("two", 1, 20)}},
		{"used before", []claim{one, leave(one, 11), enter("one", 1, 20)}},
		{"used before", []claim{leave(one, 11)}},
		{"", []claim{share(one), share(enter("two", 1, 11)), share(enter("three", 2, 12)), leave(share(one), 20), enter("four", 3, 21)}},
		{"", []claim{share(two), leave(share(two), 25), share(enter("one", 1, 26))}}, // fences of sharers say nothing of each other
		{"overlap", []claim{share(one), share(enter("two", 1, 11)), enter("four", 3, 21), leave(share(one), 22)}},
		{"overlap", []claim{one, share(two), leave(one, 20)}},
		{"inversion", []claim{two, leave(two, 25), share(enter("one", 1, 26))}},
		{"used before", []claim{share(one), leave(share(one), 11), enter("two", 1, 20)}},
	} {
		l := newLedger()
		for i, c := range tc.claims {
			err := l.judge(c)
			if i < len(tc.claims)-1 || tc.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
			}
		}
	}
	l := newLedger()
	require.NoError(t, l.judge(enter("one", 1, instant())))
	l.gone(l.inside["x"])
	require.NoError(t, l.judge(enter("two", 2, instant())))
	require.Len(t, l.failover["x"], 1)
	require.Empty(t, l.orphans)
}
