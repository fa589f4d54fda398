package node_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
)

// Members that begin together are in soon, and those that close together are gone soon, with a few swaps each.
func TestLeaseTogether(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		const n = 32
		_, swaps := g.counted()
		g.delayed(3 * time.Millisecond)
		began := time.Now()
		for range n {
			g.join()
		}
		for len(g.all[0].Status().View.Members) < n {
			time.Sleep(leaseOf / 100)
		}
		require.Less(t, time.Since(began), leaseOf)
		require.Less(t, swaps.Swap(0), int64(6*n))
		time.Sleep(2 * leaseOf) // they act

		began = time.Now()
		var closing sync.WaitGroup
		for _, s := range slices.Clone(g.all[1:]) {
			closing.Go(s.close)
		}
		closing.Wait()
		require.Less(t, time.Since(began), leaseOf)
		require.Less(t, swaps.Load(), int64(6*n))
		time.Sleep(leaseOf)
		require.Len(t, g.all[0].Status().View.Members, 1)
	})
}

// If two members cannot reach each other, one of them is excluded, and the same one whenever it comes back.
func TestLeaseWhoGoes(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		all := g.open(3)
		g.net.Cut(1, 2)
		g.net.Cut(2, 1)
		time.Sleep(60 * leaseOf)
		a, b := all[0].Status().Lease.Exclusions, all[1].Status().Lease.Exclusions
		require.True(t, a == 0 && b > 1 || a > 1 && b == 0, "%d and %d", a, b)
		require.Zero(t, all[2].Status().Lease.Exclusions)
	})
}

// A member whose links to all others flap for ten minutes, or do not work, is excluded, and no other one. It brings
// about a bounded number of views.
func TestLeaseFlapping(t *testing.T) {
	const long = 10 * time.Minute
	for _, period := range []time.Duration{3 * leaseOf / 4, 2 * leaseOf, long} {
		bubbleLease(t, central.New, func(t *testing.T, g *group) {
			all := g.open(4)
			first := all[1].Status().View.Changes
			for range long / period {
				all[0].cut.Store(!all[0].cut.Load())
				time.Sleep(period)
			}
			changes := all[1].Status().View.Changes - first
			t.Logf("every %v: the group changes %d times", period, changes)
			require.Less(t, changes, uint64(40))
			require.Positive(t, all[0].Status().Lease.Exclusions)
			for _, s := range all[1:] {
				require.Zero(t, s.Status().Lease.Exclusions)
			}
			all[0].cut.Store(false)
		})
	}
}
