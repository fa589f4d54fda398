// Package storm lets many things happen to locks at once: callers of all kinds, faults that a seed draws from a
// table, and one referee that judges each grant in true time. What a storm needs of locks, it needs of package lock only,
// so that members, clients and single records can be in one.
package storm

import (
	"context"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dmutex/dmutex/lock"
)

// Seeds returns the seeds 0 to n-1, or the one in DMUTEX_SEED, with which a test that failed is run again.
func Seeds(t testing.TB, n int) (seeds []uint64) {
	if text := os.Getenv("DMUTEX_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("DMUTEX_SEED: %v", err)
		}
		return []uint64{seed}
	}
	for seed := range n {
		seeds = append(seeds, uint64(seed))
	}
	return seeds
}

// A Fault is something that happens now and then.
type Fault struct {
	Name string
	Rate int // how often, compared with the others
	Do   func()
}

// among reports whether DMUTEX_FAULTS lets a fault happen: it has names with semicolons between them, and if it is not
// set all may. So who wants to know what a failure needs leaves out one after the other.
func among(name string) bool {
	text, some := os.LookupEnv("DMUTEX_FAULTS")
	return !some || slices.Contains(strings.Split(text, ";"), name)
}

// A Storm is a run with one seed.
type Storm struct {
	Referee
	Luck *rand.Rand // draws the faults, and what they ask it for

	t       testing.TB
	seed    uint64
	working sync.WaitGroup
	tasks   uint64
	began   time.Time
	on      []string // faults
	happens []string // what happened last

	noting sync.Mutex
	sum    hash.Hash64 // of the notes
	notes  io.Writer   // nil unless DMUTEX_NOTES names a file
}

// New returns a storm. If its test fails, it says what happened last, and how to run it again.
func New(t testing.TB, seed uint64) *Storm {
	s := &Storm{t: t, seed: seed, Luck: rand.New(rand.NewPCG(seed, 0)), began: time.Now(), sum: fnv.New64()}
	s.note = s.Note
	if name := os.Getenv("DMUTEX_NOTES"); name != "" {
		file, err := os.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		s.notes = file
	}
	s.wrong = func(format string, args ...any) {
		t.Errorf("seed %d, after %v: "+format, append([]any{seed, time.Since(s.began)}, args...)...)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d. At the end:\n%s\nto run it again: DMUTEX_SEED=%[1]d DMUTEX_FAULTS='%[3]s' go test -run '%[4]s'",
				seed, strings.Join(s.happens, "\n"), strings.Join(s.on, ";"), "^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$")
		}
	})
	return s
}

// Wrong says that something is wrong, beside what the referee sees.
func (s *Storm) Wrong(format string, args ...any) { s.wrong(format, args...) }

// Note notes what happens. Two runs with the same notes are the same run. DMUTEX_NOTES names a file for them.
func (s *Storm) Note(format string, args ...any) {
	s.noting.Lock()
	defer s.noting.Unlock()
	line := fmt.Appendf(nil, "%12v "+format+"\n", append([]any{time.Since(s.began)}, args...)...)
	_, _ = s.sum.Write(line)
	if s.notes != nil {
		_, _ = s.notes.Write(line)
	}
}

// Sum returns a sum of the notes.
func (s *Storm) Sum() uint64 {
	s.noting.Lock()
	defer s.noting.Unlock()
	return s.sum.Sum64()
}

// Seed returns the seed.
func (s *Storm) Seed() uint64 { return s.seed }

// Random returns the luck of one more task.
func (s *Storm) Random() *rand.Rand {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks++
	return rand.New(rand.NewPCG(s.seed, s.tasks))
}

// UpTo draws a duration below the given one.
func (s *Storm) UpTo(most time.Duration) time.Duration {
	return time.Duration(s.Luck.Int64N(int64(most)))
}

// On draws whether a fault that lasts for the whole run is on: in one of so many runs.
func (s *Storm) On(name string, of int) bool {
	on := s.Luck.IntN(of) == 0 && among(name)
	if on {
		s.on = append(s.on, name)
	}
	return on
}

// Blow lets n faults happen, each after a pause. With the seed 0 all of them may, with another seed three in
// four, some of them more often: what often happens hides what seldom does.
func (s *Storm) Blow(n int, pause func() time.Duration, faults ...Fault) {
	faults = slices.Clone(faults)
	if s.seed > 0 {
		all := slices.Clone(faults)
		if faults = slices.DeleteFunc(faults, func(Fault) bool { return s.Luck.IntN(4) == 0 }); len(faults) == 0 {
			faults = all
		}
		for i := range faults {
			faults[i].Rate <<= s.Luck.IntN(8) / 3
		}
	}
	faults = slices.DeleteFunc(faults, func(f Fault) bool { return !among(f.Name) })
	sum := 0
	for _, f := range faults {
		s.on = append(s.on, f.Name)
		sum += f.Rate
	}
	for range n {
		time.Sleep(pause())
		if sum == 0 {
			continue
		}
		draw := s.Luck.IntN(sum)
		for _, f := range faults {
			if draw -= f.Rate; draw < 0 {
				s.happens = append(s.happens[max(0, len(s.happens)-30):], fmt.Sprintf("%12v %s", time.Since(s.began), f.Name))
				s.Note("%s", f.Name)
				f.Do()
				break
			}
		}
	}
}

// A Caller says how a process takes locks.
type Caller struct {
	Who      string
	Lock     func(name string) lock.Mutex
	Names    int                                                // how many locks there are, called "lock 0" and so on
	Patience func(luck *rand.Rand) time.Duration                // how long a call may take
	Hold     func(luck *rand.Rand) time.Duration                // how long it holds a lock
	Tries    int                                                // one call in so many is a TryAcquire, none if it is 0
	TryFails func(err error) bool                               // which errors a TryAcquire may return, beside ErrBusy
	Ends     func(err error) bool                               // which errors any call may return, and the caller ends
	Loses    func(err error) bool                               // which errors may end a hold
	Margin   time.Duration                                      // see Stay
	Gives    func(err error) bool                               // likewise
	Shares   bool                                               // with others
	Also     []func(ctx context.Context, luck *rand.Rand) error // other ways to take locks, as often as the first
}

// Go starts a caller. It ends with the context, or when a call returns an error of c.Ends or an unexpected one.
func (s *Storm) Go(ctx context.Context, c Caller) {
	luck := s.Random()
	s.working.Go(func() {
		for ctx.Err() == nil {
			patience := 24 * time.Hour
			if c.Patience != nil {
				patience = c.Patience(luck)
			}
			brief, cancel := context.WithTimeout(ctx, patience)
			begin := time.Now()
			try, err := s.take(brief, &c, luck)
			ended := brief.Err() != nil
			cancel()
			switch {
			case err == nil, ended, errors.Is(err, lock.ErrBusy):
			case c.Ends != nil && c.Ends(err):
				return
			case try && c.TryFails != nil && c.TryFails(err):
			default:
				s.wrong("a call of %s has failed: %v", c.Who, err)
				return
			}
			switch at := time.Since(begin) == 0; { // nobody spins
			case at && err != nil:
				time.Sleep(50 * time.Millisecond)
			case at:
				time.Sleep(time.Millisecond)
			}
		}
	})
}

func (s *Storm) take(ctx context.Context, c *Caller, luck *rand.Rand) (try bool, _ error) {
	if way := luck.IntN(1 + len(c.Also)); way > 0 {
		return false, c.Also[way-1](ctx, luck)
	}
	name := fmt.Sprint("lock ", luck.IntN(c.Names))
	m := c.Lock(name)
	if c.Shares {
		m = m.(lock.Sharable).Shared()
	}
	take := m.Acquire
	if try = c.Tries > 0 && luck.IntN(c.Tries) == 0; try {
		take = m.TryAcquire
	}
	h, err := take(ctx)
	if err != nil {
		return try, err
	}
	long := c.Hold(luck)
	s.Judge(Stay{Who: c.Who, Lock: name, Fence: h.Fence(), Shared: c.Shares, Hold: h, Margin: c.Margin, Gives: c.Gives}, func() {
		select {
		case <-h.Context().Done():
			if luck.IntN(2) == 0 {
				time.Sleep(long) // it notices late that it has lost the lock
			}
		case <-time.After(long):
		}
	})
	first, why := h.Release(), h.Err()
	switch again := h.Release(); {
	case first == nil && !errors.Is(why, lock.ErrReleased), first != nil && !errors.Is(why, lock.ErrLost), !errors.Is(first, lock.ErrLost) && first != nil:
		s.wrong("%s released %s with %v, and its handle says %v", c.Who, name, first, why)
	case fmt.Sprint(again) != fmt.Sprint(first) || h.Err().Error() != why.Error():
		s.wrong("%s released %s twice, with %v and %v, and its handle says %v and %v", c.Who, name, first, again, why, h.Err())
	case first != nil && (c.Loses == nil || !c.Loses(first)):
		s.wrong("%s has lost %s: %v", c.Who, name, first)
	}
	return try, nil
}

// Wait waits until all callers have ended.
func (s *Storm) Wait() { s.working.Wait() }

// Goes requires that each of the processes is granted a lock within the time.
func (s *Storm) Goes(within time.Duration, who ...string) {
	before := make(map[string]int)
	for _, w := range who {
		before[w] = s.Grants(w)
	}
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(within / 100) {
		if !slices.ContainsFunc(who, func(w string) bool { return s.Grants(w) == before[w] }) {
			return
		}
	}
	for _, w := range who {
		if s.Grants(w) == before[w] {
			s.wrong("%s was granted no lock for %v", w, within)
		}
	}
}
