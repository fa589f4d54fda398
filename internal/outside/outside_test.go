package outside

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/kit/wrongclock"
)

// What is made within Open goes by the clocks of the process and draws its numbers, and what is made later does not.
func TestOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, alike := &Process{Clock: wrongclock.New(1, 0)}, wrongclock.New(1, 0)
		var inside *clock.Clock
		p.Open(func() {
			require.Equal(t, p, Current())
			inside = clock.New()
		})
		require.Nil(t, Current())
		p.Clock.(*wrongclock.Clock).Step(time.Hour)
		require.Equal(t, int64(time.Hour), inside.Now())
		require.Zero(t, clock.New().Now())
		for range 100 {
			require.Equal(t, alike.UpTo(time.Hour), inside.UpTo(time.Hour))
		}
	})
}
