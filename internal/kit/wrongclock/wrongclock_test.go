package wrongclock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begin := New(1, 10_000), time.Now().UnixNano()
		require.Equal(t, begin, func() int64 { _, wall := c.Read(); return wall }())
		shows := func(steady, wall time.Duration) {
			t.Helper()
			s, w := c.Read()
			require.InDelta(t, steady, s, 3000)
			require.InDelta(t, wall, w-begin, 3000)
		}
		for range 1000 { // how often it is read makes no difference
			time.Sleep(100 * time.Millisecond)
			c.Read()
		}
		shows(101*time.Second, 101*time.Second)
		c.Step(-time.Hour)
		shows(101*time.Second, 101*time.Second-time.Hour)
		c.Sleep(time.Minute)
		time.Sleep(time.Minute / 2)
		shows(101*time.Second, 131*time.Second-time.Hour)
		first, _ := c.Read()
		second, _ := c.Read()
		require.Less(t, first, second, "two readings in a sleep are in order")
		time.Sleep(c.Span(101 * time.Second))
		shows(202*time.Second, 262*time.Second-time.Hour)
		c.Drift(-10_000)
		time.Sleep(c.Span(99 * time.Second))
		shows(301*time.Second, 361*time.Second-time.Hour)
		require.Negative(t, c.Span(-1))
		again := New(1, 0)
		for range 1000 {
			d := c.UpTo(time.Second)
			require.Less(t, d, time.Second)
			require.Equal(t, d, again.UpTo(time.Second))
		}
	})
}
