package nodetest

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node"
)

// Stays requires that a member that stays gets a lock within a second, while n others join, lock and leave as fast
// as they can.
func Stays(t *testing.T, stays *node.Node, n int, open func() (*node.Node, error)) {
	var others sync.WaitGroup
	long, least := 10*time.Second, 100
	if racetest.On {
		long, least = time.Second, 10
	}
	end := time.Now().Add(long)
	came := make([]int, n)
	for i := range came {
		others.Go(func() {
			for ; time.Now().Before(end); came[i]++ {
				n, err := open()
				if err != nil {
					t.Error(err)
					return
				}
				held, err := n.Mutex("x").Acquire(t.Context())
				if err == nil {
					err = held.Release()
				}
				if err != nil {
					t.Error(err)
				}
				if err := n.Close(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	last, grants := uint64(0), 0
	for time.Now().Before(end) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		held, err := stays.Mutex("x").Acquire(ctx)
		cancel()
		if err != nil {
			t.Errorf("after %d grants: %v", grants, err)
			break
		}
		require.Greater(t, held.Fence(), last)
		last = held.Fence()
		grants++
		require.NoError(t, held.Release())
		time.Sleep(time.Millisecond)
	}
	others.Wait()
	t.Logf("%d grants, while others came %v times, in %d views", grants, came, stays.Status().View.Changes)
	require.Greater(t, slices.Min(came), least)
}
