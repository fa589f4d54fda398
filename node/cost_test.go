package node_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/transport/memlink"
)

// The frames that an idle group sends in a second are bounded by the square of the number of members, and the
// bytes of a view change with a newcomer by its cube. docs/performance.md has what this test prints with -v and
// DMUTEX_LONG=1.
func TestCostOfMembers(t *testing.T) {
	if racetest.On {
		t.Skip("it counts frames, and takes a while")
	}
	sizes := []int{5, 20}
	if os.Getenv("DMUTEX_LONG") != "" {
		sizes = []int{5, 20, 50}
	}
	for _, n := range sizes {
		delays := memlink.Config{Seed: 1, MinDelay: time.Millisecond, MaxDelay: time.Millisecond}
		bubble(t, both, central.New, delays, func(t *testing.T, g *group) {
			last := func() { g.join() }
			if g.mode == strict {
				nodetest.Today()
				g.open(n)
				g.close(dmutex.NodeID(n))
				last = func() { g.start(dmutex.NodeID(n)) }
			} else {
				g.open(n - 1)
			}
			sent := func() (frames, bytes int64) {
				for _, s := range g.all {
					frames += s.frames.Load()
					bytes += s.bytes.Load()
				}
				return frames, bytes
			}
			settle := func() {
				for _, s := range g.all {
					s.sees(len(g.all))
				}
			}
			settle()
			time.Sleep(time.Second)
			_, before := sent()
			last()
			settle()
			_, change := sent()
			change -= before
			time.Sleep(10 * time.Second)
			before, _ = sent()
			time.Sleep(15 * time.Second)
			idle, _ := sent()
			idle = (idle - before) / 15
			t.Logf("%2d members, %v: %5d idle frames a second, %4d kB when the last one comes", n, g.mode, idle, (change+999)/1000)
			require.Less(t, int(idle), 2*n*n)
			require.Less(t, int(change), 20*n*n*n+20_000)
		})
	}
}
