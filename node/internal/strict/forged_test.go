package strict

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Somebody forges frames of member 1 to member 2, which then takes the true ones for repeats. Member 1
// says so and stops, and its next process takes part again.
func TestForgedData(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		for _, id := range g.members {
			g.start(id)
		}
		for _, id := range g.members {
			require.NoError(t, g.nodes[id].Ready(t.Context()))
		}
		g.links[2].host.Deliver(1, nodetest.Forge(t, g.nodes[1].Status().Life, g.nodes[2].Status().Life, 1000))
		require.NoError(t, g.mutex(1, "x").Ask(t.Context()))
		time.Sleep(5 * time.Second)
		require.ErrorContains(t, g.nodes[1].Status().Err, "node: member 2: dmutex: peer's mistake: for some seconds it has acknowledged only what was never sent")
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorContains(t, err, "it has acknowledged only what was never sent")
		g.close(1)
		g.start(1)
		for _, id := range g.members {
			require.NoError(t, g.mutex(id, "x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
		}
	})
}
