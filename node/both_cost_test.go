package node_test

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// traffic counts what links send.
type traffic struct{ frames, bytes atomic.Int64 }

func (n *traffic) count(frame []byte) {
	n.frames.Add(1)
	n.bytes.Add(int64(len(frame)))
}

type counted struct {
	transport.Link
	n *traffic
}

func (l counted) Send(to dmutex.NodeID, frame []byte) error {
	l.n.count(frame)
	return l.Link.Send(to, frame)
}

type countedDynamic struct {
	transport.DynamicLink
	n *traffic
}

func (l countedDynamic) Send(to dmutex.NodeID, frame []byte) error {
	l.n.count(frame)
	return l.DynamicLink.Send(to, frame)
}

// The frames that an idle group sends in a second are bounded by the square of the number of
// members. The bytes of the view change in which the last member joins are bounded by its cube.
// docs/performance.md has what this test prints with -v and DMUTEX_LONG=1, which adds 50 members.
func TestCostOfMembers(t *testing.T) {
	if racetest.On {
		t.Skip("it counts frames, and takes a while")
	}
	sizes := []int{5, 20}
	if os.Getenv("DMUTEX_LONG") != "" {
		sizes = append(sizes, 50)
	}
	for _, n := range sizes {
		var sent traffic
		measure := func(mode string, nodes []*node.Node, last func() *node.Node) {
			settle := func() {
				for _, n := range nodes {
					for v := n.Status().View; !v.Acts || len(v.Members) < len(nodes); v = n.Status().View {
						time.Sleep(time.Millisecond)
					}
				}
			}
			settle()
			time.Sleep(time.Second)
			before := sent.bytes.Load()
			nodes = append(nodes, last())
			settle()
			change := sent.bytes.Load() - before
			time.Sleep(10 * time.Second)
			idle := sent.frames.Load()
			time.Sleep(15 * time.Second)
			idle = (sent.frames.Load() - idle) / 15
			t.Logf("%s, %2d members: %5d idle frames a second, %4d kB when the last one comes", mode, n, idle, (change+999)/1000)
			require.Less(t, int(idle), 2*n*n)
			require.Less(t, int(change), 20*n*n*n+20_000)
		}
		delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
		bubble(t, central.New, delays, func(t *testing.T, g *group) {
			today()
			for id := range dmutex.NodeID(n) {
				g.members = append(g.members, id+1)
			}
			start := func(id dmutex.NodeID) *node.Node {
				n, err := node.OpenStrict(t.Context(), id, g.members, counted{g.net.Link(id), &sent}, node.Config{Algorithm: g.algorithm})
				require.NoError(t, err)
				g.nodes[id] = n
				return n
			}
			for _, id := range g.members {
				start(id)
			}
			for _, n := range g.nodes {
				require.NoError(t, n.Ready(t.Context()))
			}
			g.close(dmutex.NodeID(n))
			var nodes []*node.Node
			for _, n := range g.nodes {
				nodes = append(nodes, n)
			}
			measure("strict", nodes, func() *node.Node { return start(dmutex.NodeID(n)) })
		})
		bubbleLease(t, central.New, func(t *testing.T, g *leaseGroup) {
			open := func() *node.Node {
				s := &member{group: g}
				var err error
				s.Node, err = node.Open(t.Context(), &g.store, countedDynamic{s.newLink(), &sent}, g.config(s))
				require.NoError(t, err)
				g.all = append(g.all, s)
				return s.Node
			}
			var nodes []*node.Node
			for range n - 1 {
				nodes = append(nodes, open())
			}
			measure("lease ", nodes, open)
		})
	}
}
