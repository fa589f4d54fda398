// Package storm lets many things happen to locks at once: faults that a seed draws from a table, and one referee that judges
// each grant in true time.
package storm

import (
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
