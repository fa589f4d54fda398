package client_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A hundred clients that hold locks and wait for others die at once. Then, and when their
// sessions run out, a free lock takes no longer than before. Under the race detector, which is
// several times slower, there are twenty.
func TestHundredDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		const delay = 2 * time.Millisecond
		var err error
		w.net, err = memlink.New(memlink.Config{MinDelay: delay, MaxDelay: delay})
		require.NoError(t, err)
		members := []string{"a", "b", "c"}
		for _, name := range members {
			w.open(name)
		}
		var others, doomed []*user
		for i := range 6 {
			others = append(others, w.use(fmt.Sprint("other-", i), members[i%3]))
		}
		count := 100
		if racetest.On {
			count = 20
		}
		for i := range count {
			u := w.use(fmt.Sprint("doomed-", i), members[i%3])
			u.acquire(fmt.Sprint("held-", i))
			doomed = append(doomed, u)
		}
		for i, u := range doomed {
			u.eventually(fmt.Sprint("held-", (i+1)%len(doomed)))
		}
		longest := func() (longest time.Duration) { // in three sessions
			var mu sync.Mutex
			var all sync.WaitGroup
			begin := time.Now()
			for i, u := range others {
				all.Go(func() {
					for j := 0; time.Since(begin) < 3*session; j++ {
						called := time.Now()
						h, err := u.Mutex(fmt.Sprint("free-", i, "-", j%20)).Acquire(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						longest = max(longest, time.Since(called))
						mu.Unlock()
						if err := h.Release(); err != nil {
							t.Error(err)
						}
						time.Sleep(7 * time.Millisecond)
					}
				})
			}
			all.Wait()
			return longest
		}
		before := longest()
		require.GreaterOrEqual(t, before, 2*delay)
		for _, u := range doomed {
			u.die()
		}
		require.LessOrEqual(t, longest(), before)
		for i := range doomed {
			h, err := others[0].Mutex(fmt.Sprint("held-", i)).TryAcquire(t.Context())
			require.NoError(t, err)
			require.NoError(t, h.Release())
		}
	})
}
