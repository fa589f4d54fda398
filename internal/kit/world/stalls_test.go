package world

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// Everything at once while goroutines stall between any two statements of the drivers, for up to a lease and a half. With
// DMUTEX_LONG=1 it runs as many seeds as [seeds] says; DMUTEX_SEED runs one that has failed again, event by event.
func TestStalls(t *testing.T) {
	skip(t)
	b := newBuild(t)
	b.ordered(t)
	b.stalled(t)
	program := b.program(t)
	grants, stalls, n := 0, 0, 0
	for seed := range seeds(t, 0) {
		out, err := run(t, program, seed)
		if err != nil {
			t.Errorf("%s\nThis was the build with stalls: instead of the test that it names run -run '^TestStalls$'", out)
			continue
		}
		sum := regexp.MustCompile(`(\d+) grants;.*\bstall:(\d+)`).FindStringSubmatch(out)
		require.NotNil(t, sum, out)
		g, _ := strconv.Atoi(sum[1])
		s, _ := strconv.Atoi(sum[2])
		grants, stalls, n = grants+g, stalls+s, n+1
	}
	t.Logf("%d seeds, %d grants, %d stalls", n, grants, stalls)
}

// stalling are faults that show only when a goroutine stalls at a bad moment, or when who waits for a mutex lets time pass.
var stalling = []mutant{
	{stuckLink, ofGroup + "view.go", "		g.running.Go(func() {\n			g.Log(slog.LevelWarn, \"waiting for members\", waited, slog.String(\"for\", g.Describe(missing).Error()))\n		})\n", "		g.Log(slog.LevelWarn, \"waiting for members\", waited, slog.String(\"for\", g.Describe(missing).Error()))\n", ""},
	{"the time of an input is read before the mutex is had", ofGroup + "view.go", "	g.mu.Lock()\n	defer g.mu.Unlock()\n	now := g.who.now()\n	g.apply(now, input(now))\n", "	now, _ := g.clocks.Read()\n	g.mu.Lock()\n	defer g.mu.Unlock()\n	g.who.now()\n	g.apply(now, input(now))\n", ""},
	{"a waiter is told while the list is changed that may be in its memory", ofLocks + "lock.go", "	l.waiters = slices.DeleteFunc(l.waiters, some)\n", "	out = nil\n	l.waiters = slices.DeleteFunc(l.waiters, func(w *Waiter) bool {\n		if !some(w) {\n			return false\n		}\n		w.finish(nil, why)\n		return true\n	})\n", "seed 491 found it when it was in the source; it needs a stall at one statement, and another node that takes the memory meanwhile"},
	{"Until of a member's hold reads the time last", ofLocks + "held.go", "	now, left := time.Now(), t.cfg.Mail.Clock().Span(t.Left()) // in this order, so that a pause between them makes it no later\n", "	left := t.cfg.Mail.Clock().Span(t.Left())\n	now := time.Now()\n", "not in 300 worlds: it needs a stall between the two, and a hold that is lost soon after"},
}

// stall is run for the build with stalls, in up to 1,000 worlds: a stall must be at the right one of 5,000 points.
func (m *mutant) stall(t *testing.T, b *build) (seeds int, how string) {
	b.ordered(t)
	b.stalled(t)
	program := b.program(t)
	for seed := range uint64(1000) {
		if out, err := run(t, program, seed); err != nil {
			return int(seed) + 1, first(out)
		}
	}
	return 0, "not found"
}
