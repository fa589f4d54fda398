package mail_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/transport/memlink"
)

// A Wake is in time, also between the looks at the clock, which come each second.
func TestWakeIsInTime(t *testing.T) {
	run(t, memlink.Config{}, 2, func(t *testing.T, p *post) {
		boxes := p.meet()
		one := boxes[0]
		time.Sleep(10 * time.Second)
		start := time.Now()
		var at []time.Duration
		one.tick = func(int64) int64 {
			at = append(at, time.Since(start))
			return never
		}
		for _, after := range []time.Duration{300, 700, 1650} {
			one.Wake(one.Now() + int64(after*time.Millisecond-time.Since(start)))
			time.Sleep(after*time.Millisecond - time.Since(start) + time.Nanosecond)
		}
		synctest.Wait()
		require.Equal(t, []time.Duration{300 * time.Millisecond, 700 * time.Millisecond, 1650 * time.Millisecond}, at)
		closeAll(t, boxes...)
	})
}
