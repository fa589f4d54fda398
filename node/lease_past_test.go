package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/suzukikasami"
)

// A crash delays only locks that the dead member may hold. The algorithm decides which locks wait
// for its lease. The other locks go on at once, and so do those that survivors hold.
func TestLeasePast(t *testing.T) {
	for name, tt := range map[string]struct {
		algorithm               dmutex.Algorithm
		idle, idleThere, passed bool // whether they wait: a lock at home elsewhere, one at home at the dead member, one taken from there
	}{
		"central":       {central.New, false, true, true},
		"suzukikasami":  {suzukikasami.New, false, true, false},
		"ring":          {ring.New, false, true, false},
		"maekawa":       {maekawa.New, false, false, false},
		"ricart":        {ricart.New, true, true, true},
		"ricart, token": {ricart.Carvalho, true, true, true},
		"lamport":       {lamport.New, true, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, tt.algorithm, func(t *testing.T, g *leaseGroup) {
				one, died := g.openMortal()
				two, diedToo := g.openMortal()
				three := g.start()
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
				died(members[2])
				diedToo(members[2])
				time.Sleep(leaseOf / 1000) // a token in flight to a survivor would be lost now, and its lock would wait
				taken := func(s *member, name string, waits bool) {
					o := <-s.acquireLater(t.Context(), name)
					require.NoError(t, o.err)
					require.NoError(t, o.held.Release())
					if took := time.Since(began); waits {
						require.Greater(t, took, leaseOf)
						require.Less(t, took, leaseOf*104/100)
					} else {
						require.Less(t, took, leaseOf/20)
					}
				}
				if !tt.idle {
					taken(one, at(two, 0), false)
					taken(two, at(one, 1), false)
				}
				if !tt.passed {
					taken(one, at(three, 1), false)
				}
				if !tt.idleThere {
					taken(one, at(three, 2), false)
				}
				time.Sleep(leaseOf / 50)
				require.NoError(t, one.Ready(contextFor(t, time.Millisecond)))
				require.NoError(t, ours.Err())
				later := one.acquireLater(t.Context(), at(three, 0))
				time.Sleep(leaseOf / 100)
				require.NoError(t, ours.Release())
				require.NoError(t, (<-later).held.Release(), "a lock that a survivor held")

				st := one.Mutex(theirs).Status()
				require.Equal(t, members[2:], st.Former)
				require.InDelta(t, leaseOf, st.Drains, float64(leaseOf/10))
				_, err := one.Mutex(theirs).TryAcquire(t.Context())
				require.ErrorIs(t, err, node.ErrBusy)
				require.ErrorContains(t, err, "waiting for the leases of former members ["+members[2].String()+"], which may hold it: at most 9.")
				_, err = one.Mutex(theirs).Acquire(contextFor(t, leaseOf/10))
				require.ErrorContains(t, err, "waiting for the leases of former members ["+members[2].String()+"], which may hold it: at most 8.")

				taken(one, theirs, true)
				taken(two, at(three, 2), true)
				require.Empty(t, one.Mutex(theirs).Status().Former)
			})
		})
	}
}
