package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
)

// A process that was replaced while it was cut off, and that one peer tells of it, does not go on, though it
// asks for nothing: also if the peer said so before, and another one denied it.
func TestAccusedWhileIdle(t *testing.T) {
	for _, before := range []bool{false, true} {
		each(t, strict, func(t *testing.T, g *group) {
			startSecond := g.openForked()
			held := g.acquire(1, "x")
			if before {
				g.taken(1, 3)
				time.Sleep(3 * time.Second)
				require.NoError(t, g.node(1).Status().Err)
			}
			g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3, second})
			require.NoError(t, startSecond().Mutex("x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
			time.Sleep(10 * time.Minute)
			require.NoError(t, held.Err(), "it cannot know yet")
			g.net.Heal()
			g.taken(1, 3) // as a link says when it connects
			time.Sleep(2 * time.Second)
			require.ErrorIs(t, g.node(1).Status().Err, node.ErrReplaced)
			require.False(t, g.node(1).Status().View.Acts)
			require.ErrorIs(t, held.Err(), node.ErrReplaced)
		})
	}
}
