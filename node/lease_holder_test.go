package node_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
)

// A member that was excluded while it asked who holds a lock, and is in no view for a while, asks again
// instead of saying that nobody does.
func TestLeaseHolderExcluded(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := slices.Clone(g.open(2))
		held := all[1].acquire("x")
		exclude := func() {
			all[0].isolate(true)
			all[1].sees(1)
		}
		for range 3 { // so it pauses before it joins again
			exclude()
			all[0].isolate(false)
			for was := all[0].Self(); all[0].Self() == was; {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, all[0].Ready(t.Context()))
		}
		all[0].cut.Store(true)
		holder := make(chan node.Holder, 1)
		go func() {
			h, err := all[0].Mutex("x").Holder(nodetest.ContextFor(t, 10*leaseOf))
			require.NoError(t, err)
			holder <- h
		}()
		synctest.Wait()
		exclude()
		all[0].isolate(false)
		h := <-holder
		require.Equal(t, held.Fence(), h.Fence)
		require.Equal(t, all[1].Self(), h.Node)
	})
}
