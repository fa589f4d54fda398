package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node/internal/locks"
)

// A dead reader delays writers for its lease, and readers not at all.
func TestSharedDeath(t *testing.T) {
	for name, algorithm := range map[string]dmutex.Algorithm{"default": nil, "central": central.New} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, algorithm, func(t *testing.T, g *leaseGroup) {
				one, died := g.openMortal()
				two, diedToo := g.openMortal()
				three := g.start()
				for _, s := range g.all {
					require.NoError(t, s.Ready(t.Context()))
				}
				members := []dmutex.NodeID{one.Self(), two.Self(), three.Self()}
				names := map[dmutex.NodeID]string{}
				for i := 0; len(names) < 3; i++ {
					name := fmt.Sprint("lock ", i)
					names[locks.Home(name, members)] = name
				}
				delete(names, three.Self())
				for _, name := range names {
					_, err := three.Mutex(name).Shared().Acquire(t.Context())
					require.NoError(t, err)
				}
				h, err := two.Mutex(names[one.Self()]).Shared().Acquire(t.Context())
				require.NoError(t, err)
				began := time.Now()
				three.crash()
				died(members[2])
				diedToo(members[2])
				for _, name := range names {
					for _, s := range []*member{one, two} {
						r, err := s.Mutex(name).Shared().Acquire(nodetest.ContextFor(t, time.Minute))
						require.NoError(t, err)
						require.Less(t, time.Since(began), leaseOf/20)
						require.NoError(t, r.Release())
						_, err = s.Mutex(name).Acquire(nodetest.ContextFor(t, time.Millisecond))
						require.Error(t, err)
					}
				}
				require.NoError(t, h.Err())
				require.NoError(t, h.Release())
				for _, name := range names {
					h, err := one.Mutex(name).Acquire(t.Context())
					require.NoError(t, err)
					require.Greater(t, time.Since(began), leaseOf)
					require.Less(t, time.Since(began), leaseOf*104/100)
					require.NoError(t, h.Release())
				}
			})
		})
	}
}
