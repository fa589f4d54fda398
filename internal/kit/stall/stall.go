// Package stall lets the goroutines of a simulation pause between two statements, for as long as a process may. In a build
// that the tests of package world make, [Here] is called before each statement of what drives locks. In other builds
// nothing calls it.
//
// Such a build runs on one processor, and nothing interrupts a goroutine: so this package guards nothing.
package stall

import (
	"math/rand/v2"
	"time"
)

// Points is how many calls of Here there are. The build replaces it.
const Points = 0

// Stalls are those of one simulation.
type stalls struct {
	luck  *rand.Rand
	share int             // one point in so many
	most  time.Duration   // that a stall lasts
	left  [Points + 1]int // by point: how often it is passed until the next stall
	gap   [Points + 1]int // and the longest such time; 0 before it is passed, and -1 if nothing stalls there
	quiet int             // nothing stalls while it is more than 0
	count int
}

var now *stalls // nil while nothing stalls

// Begin lets goroutines stall at one point in so many, for at most that time.
func Begin(luck *rand.Rand, share int, most time.Duration) {
	now = &stalls{luck: luck, share: share, most: most}
}

// End ends that, but for the stalls that last, and returns how many there were.
func End() (count int) {
	if now != nil {
		count = now.count
	}
	now = nil
	return count
}

// Quiet calls f, in which nothing stalls, so that what it sees is true when it returns.
func Quiet(f func()) {
	if s := now; s != nil {
		s.quiet++
		defer func() { s.quiet-- }()
	}
	f()
}

// Here may take a while. At a point that is passed often it does so less and less often: what is done seldom is as
// likely to be wrong.
func Here(point int) {
	s := now
	switch {
	case s == nil || s.quiet > 0 || s.gap[point] < 0:
		return
	case s.gap[point] == 0 && s.luck.IntN(s.share) > 0:
		s.gap[point] = -1
		return
	case s.gap[point] == 0:
		s.gap[point] = 4
		s.left[point] = s.luck.IntN(4)
	}
	if s.left[point] > 0 {
		s.left[point]--
		return
	}
	s.gap[point] *= 3
	s.left[point] = s.luck.IntN(s.gap[point])
	s.count++
	most := []time.Duration{1, time.Millisecond, s.most / 100, s.most / 10, s.most}[s.luck.IntN(5)]
	time.Sleep(time.Duration(s.luck.Int64N(int64(most))))
}
