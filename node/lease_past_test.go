package node_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A crash delays only locks that the dead member may hold. The algorithm decides which locks wait
// for its lease. The other locks go on at once, and so do those that survivors hold.
func TestLeasePast(t *testing.T) {
	for _, a := range append(slices.Clone(algorithms.All), algorithms.Algorithm{Name: "default"}) {
		t.Run(a.Name, func(t *testing.T) {
			bubbleLease(t, a.Algorithm, func(t *testing.T, g *group) {
				one, two, three := g.join(), g.join(), g.join()
				for _, s := range g.all {
					require.NoError(t, s.Ready(t.Context()))
				}
				members := []dmutex.NodeID{one.Self(), two.Self(), three.Self()}
				at := func(home *member, k int) string { // the k-th lock with that home
					for i := 0; ; i++ {
						if name := fmt.Sprint("lock ", i); locks.Home(name, members) == home.Self() {
							if k == 0 {
								return name
							}
							k--
						}
					}
				}
				theirs := at(one, 0)
				three.acquire(theirs)
				ours := two.acquire(at(three, 0))
				require.NoError(t, two.acquire(at(three, 1)).Release())
				time.Sleep(leaseOf / 10)

				began := time.Now()
				three.crash()
				one.host.Died(members[2])
				two.host.Died(members[2])
				time.Sleep(leaseOf / 1000) // a token in flight to a survivor would be lost now, and its lock would wait
				taken := func(s *member, name string, waits bool) {
					require.NoError(t, granted(t, s.acquireLater(t.Context(), name)).Release())
					if took := time.Since(began); waits {
						require.Greater(t, took, leaseOf)
						require.Less(t, took, leaseOf*104/100)
					} else {
						require.Less(t, took, leaseOf/20)
					}
				}
				if !a.Waits.Any {
					taken(one, at(two, 0), false)
					taken(two, at(one, 1), false)
				}
				if !a.Waits.Taken {
					taken(one, at(three, 1), false)
				}
				if !a.Waits.Begun {
					taken(one, at(three, 2), false)
				}
				time.Sleep(leaseOf / 50)
				require.NoError(t, one.Ready(nodetest.ContextFor(t, time.Millisecond)))
				require.NoError(t, ours.Err())
				later := one.acquireLater(t.Context(), at(three, 0))
				time.Sleep(leaseOf / 100)
				require.NoError(t, ours.Release())
				require.NoError(t, (<-later).held.Release(), "a lock that a survivor held")

				st := one.Mutex(theirs).Status()
				who := fmt.Sprintf("%s (node %v)", three.Status().Name, members[2])
				require.Equal(t, members[2:], st.Former)
				require.Equal(t, []string{who}, st.FormerNames)
				require.InDelta(t, leaseOf, st.Drains, float64(leaseOf/10))
				_, err := one.Mutex(theirs).TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
				require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most 9.")
				_, err = one.Mutex(theirs).Acquire(nodetest.ContextFor(t, leaseOf/10))
				require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most 8.")

				taken(one, theirs, true)
				taken(two, at(three, 2), true)
				require.Empty(t, one.Mutex(theirs).Status().Former)
			})
		})
	}
}
