package node_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// The locks that were used last are kept, with the permissions that save messages.
func TestUsedLastIsKept(t *testing.T) {
	bubble(t, both, ricart.Carvalho, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		const names = 2000
		for i := range names {
			require.NoError(t, g.acquire(1, "again and again").Release())
			require.NoError(t, g.acquire(1, fmt.Sprint("once/", i)).Release())
		}
		status := g.node(1).Status()
		require.Less(t, status.Locks, names/2)
		require.EqualValues(t, 1+names, status.Sent[dmutex.Request])
	})
}

// A lock that was forgotten, and is used again, goes on with higher fences. Under the race
// detector there are two rounds, the fewest that show it.
func TestFencesRiseThoughForgotten(t *testing.T) {
	const locks = 1500
	rounds := 3
	if racetest.On {
		rounds = 2
	}
	each(t, leased, func(t *testing.T, g *group) {
		g.open(3)
		last, forgotten := make([]uint64, locks), false
		for round := range rounds {
			for i := range locks {
				h := g.acquire(dmutex.NodeID((i+round)%3+1), fmt.Sprint("name/", i))
				require.Greater(t, h.Fence(), last[i], "name %d in round %d", i, round)
				last[i] = h.Fence()
				require.NoError(t, h.Release())
			}
			forgotten = forgotten || g.node(2).Status().Locks < locks*2/3
		}
		if a, err := g.algorithm(dmutex.Start{Self: 1, Members: g.members}); err == nil {
			_, keeps := a.(dmutex.Keeper)
			require.True(t, forgotten || keeps)
		}
	})
}
