package election

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A group is machines on a network that delivers in the order of sending. It counts the
// messages.
type group struct {
	machines map[dmutex.NodeID]Machine // those that are alive
	queue    []Message
	count    [Coordinator + 1]int // sent, by kind
}

const answer, outcome = 1, 3

func newGroup(t *testing.T, algorithm Algorithm, members []dmutex.NodeID, majority bool) *group {
	t.Helper()
	g := &group{machines: map[dmutex.NodeID]Machine{}}
	for _, node := range members {
		m, err := algorithm(Config{Self: node, Members: members, Majority: majority, Answer: answer, Outcome: outcome})
		require.NoError(t, err)
		g.machines[node] = m
	}
	return g
}

func (g *group) send(out []Message) {
	for _, msg := range out {
		g.count[msg.Kind]++
		g.queue = append(g.queue, msg)
	}
}

func (g *group) start(nodes ...dmutex.NodeID) {
	for _, node := range nodes {
		g.send(g.machines[node].Start())
	}
}

// run delivers all messages, lets the timeout of an answer pass, and does both again.
func (g *group) run(t *testing.T) {
	t.Helper()
	for range 2 {
		for len(g.queue) > 0 {
			msg := g.queue[0]
			g.queue = g.queue[1:]
			if m := g.machines[msg.To]; m != nil {
				out, err := m.Handle(msg)
				require.NoError(t, err)
				g.send(out)
			}
		}
		for _, node := range dmutextest.Nodes(100) {
			if m := g.machines[node]; m != nil {
				g.send(m.Tick())
			}
		}
	}
	require.Empty(t, g.queue)
}

func (g *group) requireLeader(t *testing.T, leader dmutex.NodeID) {
	t.Helper()
	for node, m := range g.machines {
		got, epoch := m.Leader()
		require.Equal(t, leader, got, "at %d", node)
		require.NotZero(t, epoch)
	}
}

// The highest of n processes has crashed. If the lowest notices, all run
// once: n(n-1)/2 ELECTION, (n-1)(n-2)/2 ANSWER and n-2 COORDINATOR to those
// alive, n²-n-1 in all. If the second highest notices, it sends 1 ELECTION
// and n-2 COORDINATOR. Ours also sends COORDINATOR to the crashed process.
func TestBullyMessages(t *testing.T) {
	for n := 2; n <= 20; n++ {
		g := newGroup(t, Bully, dmutextest.Nodes(n), false)
		delete(g.machines, dmutex.NodeID(n))
		g.start(1)
		g.run(t)
		g.requireLeader(t, dmutex.NodeID(n-1))
		require.Equal(t, [...]int{Election: n * (n - 1) / 2, Answer: (n - 1) * (n - 2) / 2, Coordinator: n - 1}, g.count)
		const toTheDead = 1
		require.Equal(t, n*n-n-1, g.count[Election]+g.count[Answer]+g.count[Coordinator]-toTheDead)

		g = newGroup(t, Bully, dmutextest.Nodes(n), false)
		delete(g.machines, dmutex.NodeID(n))
		g.start(dmutex.NodeID(n - 1))
		g.run(t)
		g.requireLeader(t, dmutex.NodeID(n-1))
		require.Equal(t, [...]int{Election: 1, Coordinator: n - 1}, g.count)
	}
}

// The highest process bullies: it asks no other. Under the majority rule it asks
// all, and leads when all have agreed.
func TestBullyHighest(t *testing.T) {
	for n := 1; n <= 20; n++ {
		g := newGroup(t, Bully, dmutextest.Nodes(n), false)
		g.start(dmutex.NodeID(n))
		g.run(t)
		g.requireLeader(t, dmutex.NodeID(n))
		require.Equal(t, [...]int{Coordinator: n - 1}, g.count)

		g = newGroup(t, Bully, dmutextest.Nodes(n), true)
		g.start(dmutex.NodeID(n))
		g.run(t)
		g.requireLeader(t, dmutex.NodeID(n))
		require.Equal(t, [...]int{Election: n - 1, Agree: n - 1, Coordinator: n - 1}, g.count)
	}
}

// ELECTION and COORDINATOR go around once each: 2n messages, no matter which node starts.
// Several that start at once elect the same leader, and each costs at most as much.
func TestRingMessages(t *testing.T) {
	for n := 2; n <= 12; n++ {
		for _, majority := range []bool{false, true} {
			for _, starter := range dmutextest.Nodes(n) {
				g := newGroup(t, Ring, dmutextest.Nodes(n), majority)
				g.start(starter)
				g.run(t)
				g.requireLeader(t, dmutex.NodeID(n))
				require.Equal(t, [...]int{Election: n, Coordinator: n}, g.count)
			}
			for starters := 2; starters <= n; starters++ {
				g := newGroup(t, Ring, dmutextest.Nodes(n), majority)
				g.start(dmutextest.Nodes(starters)...)
				g.run(t)
				g.requireLeader(t, dmutex.NodeID(n))
				require.Equal(t, n, g.count[Coordinator])
				require.LessOrEqual(t, g.count[Election], starters*n)
			}
		}
	}
}

// All orders of the ring, of up to 7 nodes, or 8 with DMUTEX_LONG=1. A node
// that starts alone costs 2n to 3n-1 messages. If all start, ELECTION costs 2n-1 at
// best, n(n+1)/2 at worst, and n(1 + 1/2 + ... + 1/n) on the average; ELECTED n
// more.
func TestChangRobertsMessages(t *testing.T) {
	largest := 7
	if os.Getenv("DMUTEX_LONG") != "" {
		largest = 8
	}
	for n := 1; n <= largest; n++ {
		sum, orders, best, worst := 0, 0, n*n, 0
		for order := range permutations(dmutextest.Nodes(n)) {
			g := newGroup(t, ChangRoberts, order, false)
			g.start(order...)
			g.run(t)
			g.requireLeader(t, dmutex.NodeID(n))
			elected := n
			if n == 1 {
				elected = 0 // it need not tell itself
			}
			require.Equal(t, elected, g.count[Coordinator])
			orders++
			sum += g.count[Election]
			best, worst = min(best, g.count[Election]), max(worst, g.count[Election])
		}
		if n == 1 {
			require.Zero(t, worst)
			continue
		}
		require.Equal(t, 2*n-1, best, "best of %d", n)
		require.Equal(t, n*(n+1)/2, worst, "worst of %d", n)
		harmonic := 0 // n! times H(n)
		for k := 1; k <= n; k++ {
			harmonic += orders / k
		}
		require.Equal(t, n*harmonic, sum, "average of %d, times %d", n, orders)
	}
	for n := 2; n <= 20; n++ {
		for i, starter := range dmutextest.Nodes(n) {
			g := newGroup(t, ChangRoberts, dmutextest.Nodes(n), false)
			g.start(starter)
			g.run(t)
			g.requireLeader(t, dmutex.NodeID(n))
			// Its name goes as far as the highest node. The name of the highest
			// goes around, and so does the news.
			require.Equal(t, [...]int{Election: (n - 1 - i) + n, Coordinator: n}, g.count, fmt.Sprint(starter, " of ", n))
		}
	}
}

// permutations yields all orders of a list, by Heap's algorithm.
func permutations[T any](list []T) func(func([]T) bool) {
	return func(yield func([]T) bool) {
		list := slices.Clone(list)
		c := make([]int, len(list))
		if !yield(slices.Clone(list)) {
			return
		}
		for i := 1; i < len(list); {
			if c[i] >= i {
				c[i] = 0
				i++
				continue
			}
			j := 0
			if i%2 == 1 {
				j = c[i]
			}
			list[i], list[j] = list[j], list[i]
			if !yield(slices.Clone(list)) {
				return
			}
			c[i]++
			i = 1
		}
	}
}
