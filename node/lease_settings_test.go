package node_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
)

// With a store, the record has the versions that its members speak.
func TestReleasesByRecord(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		build(t, 1, 1)
		one := g.open(1)[0]
		build(t, 1, 2)
		two := g.join()
		require.NoError(t, two.Ready(t.Context()))
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		build(t, 2, 2)
		three := g.join()
		require.ErrorIs(t, three.Ready(t.Context()), node.ErrConfig)
		require.ErrorContains(t, three.Ready(t.Context()), "member 1 speaks versions 1 to 1 of the protocol, and this node versions 2 to 2: upgrade by way of")
		require.NoError(t, one.Close(t.Context()))
		four := g.join()
		require.NoError(t, four.Ready(t.Context()))
		require.NoError(t, four.acquire("x").Release())
	})
}
