package node_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Members on different continents are restarted one after the other, as in a rolling deploy. Each is
// back within twenty round trips and some seconds. See also TestReturnFromFar of package membership.
func TestRollingRestartFar(t *testing.T) {
	for _, trip := range []time.Duration{0, 250, 1000, 3000, 5000} { // in milliseconds
		for _, jitter := range []time.Duration{0, 30} { // percent
			for n := 2; n <= 3; n++ {
				trip := trip * time.Millisecond
				cfg := memlink.Config{MinDelay: trip / 200 * (100 - jitter), MaxDelay: trip / 200 * (100 + jitter)}
				t.Run(fmt.Sprintf("%d members, %v, jitter %d %%", n, trip, jitter), func(t *testing.T) {
					bubble(t, strict, central.New, cfg, func(t *testing.T, g *group) {
						g.open(n)
						for _, id := range g.members {
							require.NoError(t, g.node(id).Close(t.Context()))

							g.start(id)
							require.NoError(t, g.node(id).Ready(nodetest.ContextFor(t, 5*time.Second+20*trip)))
							require.NoError(t, g.acquire(id, "x").Release())
							for _, other := range g.members {
								require.Len(t, g.node(other).Status().View.Members, n)
							}
						}
					})
				})
			}
		}
	}
}
