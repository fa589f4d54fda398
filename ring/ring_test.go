package ring

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func TestMachine(t *testing.T)      { dmutextest.TestMachine(t, New) }
func TestMachineOrder(t *testing.T) { dmutextest.TestMachine(t, Order(3, 1, 2), 1, 2, 3) }
func TestCirculating(t *testing.T)  { dmutextest.TestMachine(t, Circulate(2)) }

func FuzzMachine(f *testing.F)     { dmutextest.FuzzMachine(f, New) }
func FuzzCirculating(f *testing.F) { dmutextest.FuzzMachine(f, Circulate(2)) }

func BenchmarkMachine(b *testing.B)     { dmutextest.BenchmarkMachine(b, New) }
func BenchmarkCirculating(b *testing.B) { dmutextest.BenchmarkMachine(b, Circulate(2)) }

// An entry costs at most N messages, and none where the token is. The long row
// takes a minute.
func TestExplore(t *testing.T) {
	const short, long = false, true
	for _, tt := range []struct {
		name              string
		algorithm         dmutex.Algorithm
		requests, cancels []int // by node
		holder            dmutex.NodeID
		long              bool
		states            int
		least, greatest   int // messages
	}{
		{"2x3", New, []int{3, 3}, []int{0}, 0, short, 224, 2, 12},
		{"2x3 cancelled", New, []int{3, 3}, []int{3}, 0, short, 3_520, 2, 12},
		{"2x3 carried over", New, []int{3, 3}, []int{1}, 2, short, 1_423, 2, 12},
		{"3x1 cancelled", New, []int{1, 1, 1}, []int{1}, 0, short, 1_136, 5, 9},
		{"3x2", New, []int{2, 2, 2}, []int{0}, 0, short, 4_281, 6, 18},
		{"3x2 cancelled", New, []int{2, 2, 2}, []int{2}, 3, short, 129_079, 5, 18},
		{"3x3", New, []int{3, 3, 3}, []int{0}, 0, short, 29_128, 6, 27},
		{"4x1 cancelled", New, []int{1, 1, 1, 1}, []int{1}, 0, short, 40_435, 9, 16},
		{"4x2", New, []int{2, 2, 2, 2}, []int{0}, 0, short, 426_230, 12, 32},
		{"4x1 in another order", Order(2, 4, 1, 3), []int{1, 1, 1, 1}, []int{1}, 0, short, 40_435, 9, 16},
		{"4x2 cancelled", New, []int{2, 2, 2, 2}, []int{1}, 0, long, 20_065_193, 9, 32},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: tt.algorithm,
				Members:   dmutextest.Nodes(len(tt.requests)),
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Holder:    tt.holder,
			})
			require.Equal(t, []int{tt.states, tt.least, tt.greatest}, []int{r.States, r.Least, r.Greatest})
		})
	}
}

// However time passes, an entry comes.
func TestExploreCirculating(t *testing.T) {
	for _, tt := range []struct {
		name              string
		pace              int
		requests, cancels []int // by node
		ticks             int
		holder            dmutex.NodeID
		states            int
		least, greatest   int // messages
	}{
		{"2x3 cancelled", 1, []int{3, 3}, []int{3}, 3, 0, 17_546, 6, 17},
		{"3x2", 1, []int{2, 2, 2}, []int{0}, 2, 0, 3_369, 12, 22},
		{"3x2 cancelled", 2, []int{2, 2, 2}, []int{1}, 2, 3, 47_671, 4, 20},
		{"4x2 cancelled", 1, []int{2, 2, 2, 2}, []int{1}, 2, 0, 957_594, 12, 37},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: Circulate(tt.pace),
				Members:   dmutextest.Nodes(len(tt.requests)),
				Network:   dmutextest.Network{Unordered: true, Channel: 1},
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Ticks:     []int{tt.ticks},
				Holder:    tt.holder,
			})
			require.Equal(t, []int{tt.states, tt.least, tt.greatest}, []int{r.States, r.Least, r.Greatest})
		})
	}
}

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

// An isolated request costs N messages, wherever the token rests, and none
// where it does.
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

// When everybody always wants it, a circulating token costs 1 message an entry,
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

// Of requests that the parked token knows of, each costs the token 1 hop of the
// way around.
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

// The node where the token rests, and the one where a fresh one would, must
// remember; the others need not.
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

func TestRefusedConfiguration(t *testing.T) {
	start := dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)}
	for name, algorithm := range map[string]dmutex.Algorithm{
		"order is empty":            Order(),
		"order without a member":    Order(1, 2),
		"order with a stranger":     Order(1, 2, 4),
		"order with a node twice":   Order(1, 2, 2),
		"order too long":            Order(1, 2, 3, 3),
		"order, circulating":        Circulate(1, 1, 2),
		"no pace":                   Circulate(0),
		"a pace that is no pace":    Circulate(-1),
		"no pace, and an odd order": Circulate(0, 1),
	} {
		_, err := algorithm(start)
		require.ErrorIs(t, err, dmutex.ErrMisuse, name)
	}
}

// What cannot come along the ring is refused, and changes nothing.
func TestRefuses(t *testing.T) {
	token := func(nodes ...dmutex.NodeID) dmutex.Message {
		return dmutex.Message{Kind: dmutex.Token, From: 1, Nodes: nodes}
	}
	want := func(nodes ...dmutex.NodeID) dmutex.Message {
		return dmutex.Message{Kind: dmutex.Request, From: 1, Attempt: 9, Nodes: nodes}
	}
	other := func(m dmutex.Message, from dmutex.NodeID) dmutex.Message {
		m.From = from
		return m
	}
	for _, tt := range []struct {
		algorithm dmutex.Algorithm
		holder    dmutex.NodeID
		msg       dmutex.Message
		why       string
	}{
		{New, 1, other(token(3), 3), "predecessor"},
		{New, 1, other(want(3), 3), "predecessor"},
		{New, 2, token(3), "second"},
		{New, 1, token(), "nobody"},
		{New, 1, token(4), "stranger"},
		{New, 1, token(0), "stranger"},
		{New, 1, token(3, 2), "ascending"},
		{New, 1, token(2, 2), "ascending"},
		{New, 1, token(1, 2), "still wants"},
		{New, 1, want(), "nobody"},
		{New, 1, want(1, 3), "one node"},
		{New, 1, want(2), "never made"},
		{New, 1, dmutex.Message{Kind: dmutex.Reply, From: 1, Attempt: 1}, "no such message"},
		{Circulate(1), 2, token(), "second"},
		{Circulate(1), 1, token(3), "no list"},
		{Circulate(1), 1, dmutex.Message{Kind: dmutex.Token, From: 1, Numbers: []uint64{1}}, "no list"},
		{New, 1, dmutex.Message{Kind: dmutex.Token, From: 1, Numbers: []uint64{1}, Nodes: []dmutex.NodeID{2}}, "numbers"},
		{Circulate(1), 1, want(1), "only the token"},
		{Circulate(1), 1, other(token(), 3), "predecessor"},
	} {
		m, err := tt.algorithm(dmutex.Start{Self: 2, Members: dmutextest.Nodes(3), Holder: tt.holder})
		require.NoError(t, err)
		before, _ := m.AppendText(nil)
		tt.msg.To = 2
		_, err = m.Handle(tt.msg)
		require.ErrorIs(t, err, dmutex.ErrPeer, tt.why)
		require.ErrorContains(t, err, tt.why)
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after))
	}
}

// The list of those who want the token is a set.
func TestNotedOnce(t *testing.T) {
	m := newGroup(t, New, 3, 1).machines[0].(*parked)
	for range 2 {
		for _, node := range []dmutex.NodeID{3, 2} {
			_, err := m.Handle(dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 2, Nodes: []dmutex.NodeID{node}})
			require.NoError(t, err)
		}
	}
	require.Equal(t, []dmutex.NodeID{2, 3}, m.wanters)
}

func TestConversations(t *testing.T) {
	dmutextest.TestScript(t, New, "testdata/parked.txt")
	dmutextest.TestScript(t, New, "testdata/late.txt")
	dmutextest.TestScript(t, Order(2, 3, 1), "testdata/cancel.txt")
	dmutextest.TestScript(t, Circulate(2), "testdata/circulating.txt")
}
