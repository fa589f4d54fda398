package node_test

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/stretchr/testify/require"
)

type counted struct {
	transport.DynamicLink
	*nodetest.Traffic
}

func (l counted) Send(to dmutex.NodeID, frame []byte) error {
	l.Count(frame)
	return l.DynamicLink.Send(to, frame)
}

// docs/performance.md has what this test prints with -v and DMUTEX_LONG=1.
func TestLeaseCostOfMembers(t *testing.T) {
	for _, n := range nodetest.Sizes(t) {
		bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
			var sent nodetest.Traffic
			open := func() *node.Node {
				s := &member{group: g}
				var err error
				s.Node, err = node.Open(t.Context(), &g.store, counted{s.newLink(), &sent}, g.config(s))
				require.NoError(t, err)
				g.all = append(g.all, s)
				return s.Node
			}
			var nodes []*node.Node
			for range n - 1 {
				nodes = append(nodes, open())
			}
			sent.Measure(t, nodes, open)
		})
	}
}
