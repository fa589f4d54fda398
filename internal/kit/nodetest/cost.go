package nodetest

import (
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/node"
)

// Sizes returns the sizes of the groups whose traffic is measured.
func Sizes(t *testing.T) []int {
	if racetest.On {
		t.Skip("it counts frames, and takes a while")
	}
	if os.Getenv("DMUTEX_LONG") != "" {
		return []int{5, 20, 50}
	}
	return []int{5, 20}
}

// Traffic counts what links send.
type Traffic struct{ frames, bytes atomic.Int64 }

// Count counts a frame.
func (c *Traffic) Count(frame []byte) {
	c.frames.Add(1)
	c.bytes.Add(int64(len(frame)))
}

// Measure measures a group that a last member joins. The frames that the idle group sends in a second are
// bounded by the square of the number of members, and the bytes of the view change by its cube.
func (c *Traffic) Measure(t *testing.T, nodes []*node.Node, last func() *node.Node) {
	settle := func() {
		for _, n := range nodes {
			for v := n.Status().View; !v.Acts || len(v.Members) < len(nodes); v = n.Status().View {
				time.Sleep(time.Millisecond)
			}
		}
	}
	settle()
	time.Sleep(time.Second)
	before := c.bytes.Load()
	nodes = append(nodes, last())
	settle()
	change := c.bytes.Load() - before
	time.Sleep(10 * time.Second)
	idle := c.frames.Load()
	time.Sleep(15 * time.Second)
	idle = (c.frames.Load() - idle) / 15
	n := len(nodes)
	t.Logf("%2d members: %5d idle frames a second, %4d kB when the last one comes", n, idle, (change+999)/1000)
	require.Less(t, int(idle), 2*n*n)
	require.Less(t, int(change), 20*n*n*n+20_000)
}
