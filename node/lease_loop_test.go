package node_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A process that crashes again and again, and is excluded each time, does not delay locks that it
// never held. The lock of an earlier crash is free when the lease of that holder has ended.
func TestLeaseCrashLoop(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		one, two := g.join(), g.join()
		for _, s := range g.all {
			require.NoError(t, s.Ready(t.Context()))
		}
		name, k := "x0", 0
		for i := dmutex.NodeID(1); i < 20; i++ { // the home of the lock is the first member in all views
			if locks.Home(name, []dmutex.NodeID{one.Self(), one.Self() + i}) != one.Self() {
				k++
				name, i = "x"+strconv.Itoa(k), 0
			}
		}
		two.acquire(name)
		crash := func(s *member) {
			number := s.Self()
			s.crash()
			one.host.Died(number)
		}
		crash(two)
		waiting := one.acquireLater(t.Context(), name)
		for range 10 {
			s := g.join()
			time.Sleep(leaseOf / 8)
			crash(s)
			time.Sleep(leaseOf / 8)
		}
		require.NotEmpty(t, waiting)
		require.NoError(t, granted(t, waiting).Release())
	})
}
