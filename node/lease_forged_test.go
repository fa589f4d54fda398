package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
)

// With a store, the peer that cannot acknowledge seems silent. One of the two is excluded, and joins as
// another process.
func TestForgedDataLease(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
		two := &member{group: g, store: outagetest.New(t, &g.store, outagetest.Faults{})}
		link := &tappedDynamic{DynamicLink: two.newLink()}
		var err error
		two.Node, err = node.Open(t.Context(), two.store, link, g.config(two))
		require.NoError(t, err)
		g.all = append(g.all, two)
		one := g.start()
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		lives := func() [2]uint64 { return [2]uint64{one.Status().Life, two.Status().Life} }
		former := lives()
		link.deliver(one.Self(), nodetest.Forge(t, former[0], former[1], 1000))
		require.NoError(t, one.Mutex("x").Ask(t.Context())) // Ask sends to all
		time.Sleep(3 * leaseOf)
		require.NotEqual(t, former, lives())
		for _, s := range []*member{one, two} {
			require.NoError(t, s.Mutex("x").Do(nodetest.ContextFor(t, leaseOf), nodetest.Nothing))
		}
	})
}

type tappedDynamic struct {
	transport.DynamicLink
	deliver func(from dmutex.NodeID, frames [][]byte)
}

func (l *tappedDynamic) Open(host transport.Host) error {
	l.deliver = host.Deliver
	return l.DynamicLink.Open(host)
}
