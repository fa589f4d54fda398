package strict

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
		each(t, func(t *testing.T, g *group) {
			g.members = []dmutex.NodeID{1, 2, 3}
			g.start(1)
			g.nodes[2] = g.startOn(2, forked{g.net.Link(2)})
			g.nodes[3] = g.startOn(3, forked{g.net.Link(3)})
			for _, n := range g.nodes {
				require.NoError(t, n.Ready(t.Context()))
			}
			time.Sleep(time.Minute) // after a calm time the next view acts at once
			held := g.acquire(1, "x")
			if before {
				g.taken(1, 3)
				time.Sleep(3 * time.Second)
				require.NoError(t, g.nodes[1].Status().Err)
			}
			g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3, second})
			g.nodes[second] = g.startOn(1, g.net.Link(second)) // to be closed
			require.NoError(t, g.nodes[second].Mutex("x").Do(nodetest.ContextFor(t, time.Minute), nodetest.Nothing))
			time.Sleep(10 * time.Minute)
			require.NoError(t, held.Err(), "it cannot know yet")
			g.net.Heal()
			g.taken(1, 3) // as a link says when it connects
			time.Sleep(2 * time.Second)
			require.ErrorIs(t, g.nodes[1].Status().Err, node.ErrReplaced)
			require.False(t, g.nodes[1].Status().View.Acts)
			require.ErrorIs(t, held.Err(), node.ErrReplaced)
		})
	}
}
