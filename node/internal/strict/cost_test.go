package strict

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
	"github.com/stretchr/testify/require"
)

type counted struct {
	transport.Link
	*nodetest.Traffic
}

func (l counted) Send(to dmutex.NodeID, frame []byte) error {
	l.Count(frame)
	return l.Link.Send(to, frame)
}

// docs/performance.md has what this test prints with -v and DMUTEX_LONG=1.
func TestCostOfMembers(t *testing.T) {
	for _, n := range nodetest.Sizes(t) {
		delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
		bubble(t, central.New, delays, func(t *testing.T, g *group) {
			nodetest.Today()
			var sent nodetest.Traffic
			for id := range dmutex.NodeID(n) {
				g.members = append(g.members, id+1)
			}
			start := func(id dmutex.NodeID) *node.Node {
				g.nodes[id] = g.startOn(id, counted{g.net.Link(id), &sent})
				return g.nodes[id]
			}
			for _, id := range g.members {
				start(id)
			}
			for _, n := range g.nodes {
				require.NoError(t, n.Ready(t.Context()))
			}
			g.close(dmutex.NodeID(n))
			sent.Measure(t, slices.Collect(maps.Values(g.nodes)), func() *node.Node { return start(dmutex.NodeID(n)) })
		})
	}
}
