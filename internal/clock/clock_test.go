package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// LESSONS L12, L55: if the wall clock gains on the monotonic one, as when the machine
// slept, the gain counts as time. A wall clock that falls behind does not count, and
// hides no later sleep. Small gains, as of a clock that is being corrected, add up. A goroutine that was
// stopped after it has read the clocks changes nothing if another has read them since.
func TestLeaseClock(t *testing.T) {
	for _, tc := range []struct {
		name  string
		steps [][2]time.Duration // by the monotonic clock, and by the wall clock
		want  time.Duration
	}{
		{"awake", [][2]time.Duration{{time.Second, time.Second}}, time.Second},
		{"asleep", [][2]time.Duration{{time.Second, time.Hour}}, time.Hour},
		{"asleep twice", [][2]time.Duration{{0, time.Minute}, {time.Second, time.Minute}}, 2 * time.Minute},
		{"set back", [][2]time.Duration{{time.Second, -time.Hour}}, time.Second},
		{"set back, then asleep", [][2]time.Duration{{0, -time.Hour}, {0, time.Minute}}, time.Minute},
		{"a little fast", [][2]time.Duration{{time.Second, 1006 * time.Millisecond}, {time.Second, 1006 * time.Millisecond}}, 2012 * time.Millisecond},
		{"restless", [][2]time.Duration{{time.Second, 1009 * time.Millisecond}, {time.Second, 991 * time.Millisecond}, {time.Second, 1009 * time.Millisecond}}, 3 * time.Second},
		{"set back, then what was read before", [][2]time.Duration{{2 * time.Second, -time.Hour}, {-time.Second, time.Hour}, {time.Second, -time.Hour}}, 2 * time.Second},
		{"asleep, then what was read before", [][2]time.Duration{{2 * time.Second, time.Hour}, {-time.Second, -time.Hour}, {time.Second, time.Hour}}, time.Hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Clock
			var passed, wall time.Duration
			for _, step := range tc.steps {
				passed, wall = passed+step[0], wall+step[1]
				c.at(int64(passed), int64(wall))
			}
			now, slept := c.at(int64(passed), int64(wall))
			require.EqualValues(t, tc.want, now)
			require.EqualValues(t, tc.want-passed, slept)
		})
	}
	synctest.Test(t, func(t *testing.T) {
		c := New()
		time.Sleep(time.Hour)
		require.EqualValues(t, time.Hour, c.Now())
	})
}

// A sleep that the kernel reports counts even if the wall clock was set back. A gain of the
// wall clock counts even if the kernel reports no sleep: a host may have stopped this
// virtual machine. A sleep that both show counts once.
func TestLeaseClockOfKernel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asleep time.Duration
		c := New()
		c.asleep = func() int64 { return int64(asleep) }
		now, slept := c.at(int64(time.Second), int64(time.Hour+time.Second)) // stopped, or set forward
		require.EqualValues(t, time.Hour+time.Second, now)
		require.EqualValues(t, time.Hour, slept)

		asleep = time.Minute
		_, slept = c.at(int64(2*time.Second), int64(time.Hour+time.Minute+2*time.Second))
		require.EqualValues(t, time.Hour+time.Minute, slept)
		_, slept = c.at(int64(3*time.Second), int64(3*time.Second)) // set back
		require.EqualValues(t, time.Hour+time.Minute, slept)

		time.Sleep(3 * time.Second)
		asleep += time.Second // and the wall clock was set back by as much
		_, slept = c.Read()
		require.EqualValues(t, time.Hour+time.Minute+time.Second, slept)
		_, slept = c.Read()
		require.EqualValues(t, time.Hour+time.Minute+time.Second, slept)
	})
}
