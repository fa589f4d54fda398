package storelock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/store"
)

// LESSONS L55. The wall clock of a holder, or of a waiter, is set, once or again and again. The holder may
// lose the lock early, but nobody gets it before the holder has had the time to stop that it always has.
func TestWallClock(t *testing.T) {
	const lease = 16 * time.Second
	for name, steps := range map[string][]time.Duration{ // one every 300 ms
		"a little":     {lease / 4},
		"a lease":      {lease},
		"more":         {3 * lease},
		"twice":        {2 * lease, 2 * lease},
		"many":         {lease, lease, lease, lease, lease, lease, lease, lease, lease, lease},
		"back":         {-time.Hour},
		"back between": {2 * lease, -time.Hour, 2 * lease},
	} {
		for who, stepped := range map[string]int{"holder": 0, "waiter": 1} {
			t.Run(name+", "+who, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var locks [2]*mutex
					record := new(store.Memory)
					for i := range locks {
						l, err := New(record, "job", lease)
						require.NoError(t, err)
						locks[i] = l.(*mutex)
					}
					h, err := locks[0].Acquire(t.Context())
					require.NoError(t, err)
					ended, granted := make(chan time.Time, 1), make(chan time.Time, 1)
					go func() {
						<-h.Context().Done()
						ended <- time.Now()
					}()
					go func() {
						next, err := locks[1].Acquire(t.Context())
						require.NoError(t, err)
						granted <- time.Now()
						require.NoError(t, next.Release())
					}()
					time.Sleep(time.Second)
					for _, by := range steps {
						locks[stepped].clock.StepWall(by)
						time.Sleep(300 * time.Millisecond)
					}
					time.Sleep(lease)
					lost, end, next := h.Release(), <-ended, <-granted
					if lost == nil {
						return
					}
					require.Zero(t, stepped, "the clock of a waiter has cost the holder the lock")
					require.GreaterOrEqual(t, next.Sub(end), lease/leases.Margin)
				})
			})
		}
	}
}
