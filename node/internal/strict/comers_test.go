package strict

import (
	"testing"
	"time"

	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A member that stays gets a lock within a second while another joins, locks and leaves as fast as
// it can.
func TestOthersComeAndGo(t *testing.T) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) {
			delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: 2 * time.Millisecond}
			bubble(t, a.Algorithm, delays, func(t *testing.T, g *group) {
				nodetest.Today()
				g.open(3)
				g.close(2)
				nodetest.Stays(t, g.nodes[1], 1, func() (*node.Node, error) {
					return node.OpenStrict(t.Context(), 2, g.members, g.net.Link(2), node.Config{Algorithm: g.algorithm})
				})
			})
		})
	}
}
