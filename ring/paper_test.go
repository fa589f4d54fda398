package ring

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// group is a ring in which a test moves the messages.
type group struct {
	t        *testing.T
	machines []dmutex.Machine
	wire     []dmutex.Message
	sent     int
}

func newGroup(t *testing.T, algorithm dmutex.Algorithm, n int, holder dmutex.NodeID) *group {
	g := &group{t: t}
	for _, self := range dmutextest.Nodes(n) {
		m, err := algorithm(dmutex.Start{Self: self, Members: dmutextest.Nodes(n), Holder: holder})
		require.NoError(t, err)
		g.machines = append(g.machines, m)
	}
	return g
}

func (g *group) send(out []dmutex.Message, err error) {
	require.NoError(g.t, err)
	for _, o := range out {
		g.wire = append(g.wire, o.Clone())
		g.sent++
	}
}

func (g *group) deliver() {
	for len(g.wire) > 0 {
		msg := g.wire[0]
		g.wire = g.wire[1:]
		g.send(g.machines[msg.To-1].Handle(msg))
	}
}

// An isolated request costs N messages, and none at the node where the token rests.
func TestIsolatedCost(t *testing.T) {
	for n := 1; n <= 7; n++ {
		for rests := 1; rests <= n; rests++ {
			for asks := 1; asks <= n; asks++ {
				g := newGroup(t, New, n, dmutex.NodeID(rests))
				g.send(g.machines[rests-1].Release())
				g.send(g.machines[asks-1].Request())
				g.deliver()
				require.Equal(t, dmutex.Held, g.machines[asks-1].Phase())
				want := n
				if asks == rests {
					want = 0
				}
				require.Equal(t, want, g.sent, "%d nodes, the token rests at %d, %d asks", n, rests, asks)
			}
		}
	}
}

// When all nodes always want the token, a circulating token costs 1 message an entry,
// and a parked one 2: a WANT need only go to the next node.
func TestSaturatedCost(t *testing.T) {
	const n, entries = 5, 50
	for name, tt := range map[string]struct {
		algorithm dmutex.Algorithm
		cost      int
	}{"circulating": {Circulate(1), 1}, "parked": {New, 2}} {
		t.Run(name, func(t *testing.T) {
			g := newGroup(t, tt.algorithm, n, 1)
			for _, m := range g.machines[1:] {
				g.send(m.Request())
			}
			g.deliver()
			g.sent = 0
			for i := range entries {
				m := g.machines[i%n]
				require.Equal(t, dmutex.Held, m.Phase())
				g.send(m.Release())
				g.send(m.Request())
				g.deliver()
				require.Equal(t, tt.cost*(i+1), g.sent)
			}
		})
	}
}

// Each request that the parked token knows of costs 1 hop of the token.
func TestSharedWay(t *testing.T) {
	const n = 6
	g := newGroup(t, New, n, 1)
	for _, m := range g.machines[1:] {
		g.send(m.Request())
	}
	g.deliver()
	require.Equal(t, n*(n-1)/2, g.sent, "WANT goes from each to node 1")
	g.sent = 0
	for i, m := range g.machines {
		require.Equal(t, dmutex.Held, m.Phase())
		g.send(m.Release())
		g.deliver()
		require.Equal(t, min(i+1, n-1), g.sent)
	}
}

// An idle node passes the token on after pace ticks, and only then.
func TestPace(t *testing.T) {
	for pace := 1; pace <= 3; pace++ {
		g := newGroup(t, Circulate(pace), 2, dmutex.None)
		c := g.machines[0].(*circulating)
		tick := func(want int) {
			out, err := c.Tick()
			require.NoError(t, err)
			require.Len(t, out, want)
		}
		for range pace - 1 {
			tick(0)
		}
		g.send(c.Request())
		require.Equal(t, dmutex.Held, c.Phase())
		tick(0) // in use
		tick(0)
		g.send(c.Release())
		require.Len(t, g.wire, 1)
		tick(0) // elsewhere
		_, err := c.Handle(dmutex.Message{Kind: dmutex.Token, From: 2, To: 1})
		require.NoError(t, err)
		for range pace - 1 {
			tick(0)
		}
		tick(1)
	}
}

// The node where the token rests and the node where a fresh token would begin must
// remember that. The other nodes may forget.
func TestForget(t *testing.T) {
	g := newGroup(t, New, 4, 3)
	g.send(g.machines[2].Release())
	for i, want := range []bool{false, true, false, true} {
		m := g.machines[i].(*parked)
		_, _, ok := m.Forget()
		require.Equal(t, want, ok)
		require.Equal(t, !want, m.Keeps())
	}
	g.send(g.machines[0].Request())
	g.deliver()
	g.send(g.machines[0].Release())
	for i := range g.machines {
		_, _, ok := g.machines[i].(*parked).Forget()
		require.True(t, ok, "the token is where it began")
	}
}

// The node with the token excludes all others.
func TestExcludes(t *testing.T) {
	machinetest.Excludes(t, New, dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
	machinetest.Excludes(t, Order(3, 2, 1), dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, nil, {1, 2}})
	for _, algorithm := range []dmutex.Algorithm{New, Order(1, 3, 2), Circulate(1)} {
		machinetest.Excludes(t, algorithm, dmutex.Start{}, [][]dmutex.NodeID{{2, 3}, nil, nil})
		machinetest.Excludes(t, algorithm, dmutex.Start{Holder: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
	}
}
