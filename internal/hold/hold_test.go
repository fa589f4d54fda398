package hold_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/hold"
)

var errLapsed = errors.New("lapsed")

func lapsed() error { return errLapsed }

// A grant may come so late that its lease has ended, for example when the machine slept.
func TestLate(t *testing.T) {
	c := clock.New()
	for range 1000 {
		h := hold.New(t.Context(), c, time.Second, 1, c.Now(), lapsed)
		<-h.Context().Done() // the timer notices
		require.ErrorIs(t, context.Cause(h.Context()), errLapsed)
		require.ErrorIs(t, h.Err(), errLapsed)
	}
}

// Until is never later than the end, however long its goroutine pauses.
func TestUntil(t *testing.T) {
	c := clock.New()
	const end = int64(time.Hour)
	h := hold.New(t.Context(), c, 16*time.Second, 1, end+int64(time.Second), lapsed)
	defer h.End(errLapsed)
	latest := func() time.Time { // the time at which the clock reaches the end
		left := time.Duration(end - c.Now())
		return time.Now().Add(left)
	}
	var mu sync.Mutex
	var last, bound time.Time
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 10_000 {
				b, until := latest(), h.Until()
				mu.Lock()
				if bound.IsZero() || b.Before(bound) {
					bound = b
				}
				if until.After(last) {
					last = until
				}
				mu.Unlock()
			}
		})
	}
	group.Wait()
	_, slept := c.Read() // which has brought the end nearer since
	require.LessOrEqual(t, last.Sub(bound), time.Duration(slept), "Until is too late")
}
