package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// pair opens two nodes that have met, in a bubble.
func pair(t *testing.T, test func(t *testing.T, one, two *Node)) { pairOf(t, ricart.New, test) }

func pairOf(t *testing.T, algorithm dmutex.Algorithm, test func(t *testing.T, one, two *Node)) {
	met(t, algorithm, []dmutex.NodeID{1, 2}, func(t *testing.T, _ *memlink.Network, nodes []*Node) { test(t, nodes[0], nodes[1]) })
}

// met opens nodes that have met, in a bubble.
func met(t *testing.T, algorithm dmutex.Algorithm, members []dmutex.NodeID, test func(t *testing.T, net *memlink.Network, nodes []*Node)) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		var nodes []*Node
		for _, id := range members {
			n, err := OpenStrict(t.Context(), id, members, net.Link(id), Config{Algorithm: algorithm})
			require.NoError(t, err)
			nodes = append(nodes, n)
		}
		t.Cleanup(func() {
			net.Heal()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			for _, n := range nodes {
				_ = n.Close(ctx)
			}
		})
		for _, n := range nodes {
			require.NoError(t, n.Ready(t.Context()))
		}
		test(t, net, nodes)
	})
}
