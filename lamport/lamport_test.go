package lamport

import (
	"flag"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

var _ = flag.Bool("update", false, "rewrite the golden files")

func TestMachine(t *testing.T)            { dmutextest.TestMachine(t, New) }
func TestMachineOmitReplies(t *testing.T) { dmutextest.TestMachine(t, OmitReplies) }

func FuzzMachine(f *testing.F)            { dmutextest.FuzzMachine(f, New) }
func FuzzMachineOmitReplies(f *testing.F) { dmutextest.FuzzMachine(f, OmitReplies) }

func BenchmarkMachine(b *testing.B)            { dmutextest.BenchmarkMachine(b, New) }
func BenchmarkMachineOmitReplies(b *testing.B) { dmutextest.BenchmarkMachine(b, OmitReplies) }

// An entry costs 3(N-1) messages; without some replies 2(N-1) to 3(N-1).
// At most 5 messages are in a channel. The long rows take half a minute.
func TestExplore(t *testing.T) {
	algorithms := map[string]dmutex.Algorithm{"plain": New, "omit": OmitReplies}
	const short, long = false, true
	for _, tt := range []struct {
		algorithm         string
		requests, cancels []int // by node
		holder            dmutex.NodeID
		long              bool
		states            int
		least, greatest   int // messages
	}{
		{"plain", []int{2, 2}, []int{0}, 0, short, 1_633, 12, 12},
		{"plain", []int{3, 3}, []int{0}, 0, short, 13_974, 18, 18},
		{"plain", []int{3, 3}, []int{3}, 0, short, 397_205, 6, 18},
		{"plain", []int{3, 3}, []int{1}, 2, short, 191_639, 13, 19},
		{"plain", []int{1, 1, 1}, []int{0}, 0, short, 547_106, 18, 18},
		{"plain", []int{1, 1, 0}, []int{1}, 3, short, 126_107, 14, 14},
		{"plain", []int{1, 1, 1}, []int{1}, 0, long, 3_284_043, 18, 18},
		{"plain", []int{2, 1, 1}, []int{0}, 0, long, 15_873_355, 24, 24},

		{"omit", []int{2, 2}, []int{0}, 0, short, 992, 8, 12},
		{"omit", []int{3, 3}, []int{0}, 0, short, 6_307, 12, 18},
		{"omit", []int{3, 3}, []int{3}, 0, short, 177_881, 4, 18},
		{"omit", []int{3, 3}, []int{1}, 2, short, 77_343, 9, 19},
		{"omit", []int{1, 1, 1}, []int{0}, 0, short, 212_347, 12, 18},
		{"omit", []int{1, 1, 0}, []int{1}, 3, short, 80_065, 10, 14},
		{"omit", []int{1, 1, 1}, []int{1}, 0, long, 1_386_425, 12, 18},
		{"omit", []int{2, 1, 1}, []int{0}, 0, long, 3_562_837, 16, 24},
	} {
		c := dmutextest.Config{
			Algorithm: algorithms[tt.algorithm],
			Members:   dmutextest.Nodes(len(tt.requests)),
			Network:   dmutextest.Network{Channel: 5},
			Requests:  tt.requests,
			Cancels:   tt.cancels,
			Holder:    tt.holder,
		}
		t.Run(tt.algorithm, func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, c)
			require.Equal(t, []int{tt.states, tt.least, tt.greatest}, []int{r.States, r.Least, r.Greatest})
		})
	}
}

// "1. To request the resource, process Pi sends the message ... to every other
// process ... 2. When process Pj receives the message ..., it ... sends a
// (timestamped) acknowledgment message to Pi. 3. To release the resource,
// process Pi ... sends a (timestamped) Pi releases resource message to every
// other process." So an entry costs 3(N-1), whatever else goes on.
func TestPaperCount(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		c := dmutextest.Config{Algorithm: New, Members: dmutextest.Nodes(n), Requests: []int{requests}}
		r, err := dmutextest.Walk(c, 1, 10)
		require.NoError(t, err)
		require.Equal(t, n*requests*3*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)

		c.Algorithm = OmitReplies
		r, err = dmutextest.Walk(c, 1, 10)
		require.NoError(t, err)
		require.GreaterOrEqual(t, r.Least, n*requests*2*(n-1), "%d nodes", n)
		require.LessOrEqual(t, r.Greatest, n*requests*3*(n-1), "%d nodes", n)
	}
}

// "(II) Different requests for the resource must be granted in the order in
// which they are made", that is by their stamps. The explorer checks it if it
// takes these for the fences.
//
// LESSONS L51.
func TestPaperOrder(t *testing.T) {
	stamp := func(m *machine) uint64 { return m.Stamp().Clock<<8 | uint64(m.Self()) }
	for _, algorithm := range []dmutex.Algorithm{
		machinetest.Probe[*machine]{Fence: stamp}.Of(New),
		machinetest.Probe[*omitting]{Fence: func(m *omitting) uint64 { return stamp(&m.machine) }}.Of(OmitReplies),
	} {
		for _, requests := range [][]int{{3, 3}, {1, 1, 1}} {
			r, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: algorithm,
				Members:   dmutextest.Nodes(len(requests)),
				Requests:  requests,
			})
			require.NoError(t, err)
			require.True(t, r.Complete)
		}
	}
}

// When everybody always requests, OmitReplies omits every reply. The rule in
// textbooks, of which it says more, omits only those to requests that cross the
// node's own: when all first ask at once, half of them.
func TestTextbookRule(t *testing.T) {
	textbook := machinetest.Probe[*machine]{
		After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
			return slices.DeleteFunc(out, func(o dmutex.Message) bool {
				theirs := dmutex.Stamp{Clock: o.Attempt, Node: o.To}
				return o.Kind == dmutex.Reply && theirs.Less(m.Stamp())
			}), nil
		},
	}
	const entries = 100
	for n := 2; n <= 9; n++ {
		for _, tt := range []struct {
			algorithm dmutex.Algorithm
			messages  int
		}{
			{New, 3 * (n - 1) * entries},
			{textbook.Of(New), 3*(n-1)*entries - n*(n-1)/2},
			{OmitReplies, 2 * (n - 1) * entries},
		} {
			r, err := dmutextest.Simulate(dmutextest.SimConfig{
				Algorithm: tt.algorithm, Members: dmutextest.Nodes(n), Think: dmutextest.Saturated, Hold: 1, Entries: entries,
			})
			require.NoError(t, err)
			require.Equal(t, tt.messages, r.Messages, "%d nodes", n)
		}
	}
}

// Nodes that omit replies and nodes that do not understand each other.
func TestMixed(t *testing.T) {
	machinetest.Explore(t, dmutextest.Config{
		Algorithm: func(s dmutex.Start) (dmutex.Machine, error) {
			if s.Self == 1 {
				return New(s)
			}
			return OmitReplies(s)
		},
		Members:  dmutextest.Nodes(2),
		Requests: []int{3},
		Cancels:  []int{1},
	})
}

func TestConversations(t *testing.T) {
	dmutextest.TestScript(t, New, "testdata/conversation.txt")
	dmutextest.TestScript(t, OmitReplies, "testdata/replies-omitted.txt")
}

// What no correct peer sends is refused, whatever this node does.
func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		msg dmutex.Message
		why string
	}{
		{dmutex.Message{Kind: dmutex.Request, Attempt: 2, Clock: 3}, "sent at the time"},
		{dmutex.Message{Kind: dmutex.Request, Attempt: 9, Clock: 9}, "still in the queue"},
		{dmutex.Message{Kind: dmutex.Reply, Attempt: 2, Clock: 2}, "not later"},
		{dmutex.Message{Kind: dmutex.Reply, Attempt: 8, Clock: 9}, "never made"},
		{dmutex.Message{Kind: dmutex.Release, Attempt: 2, Clock: 2}, "not later"},
		{dmutex.Message{Kind: dmutex.Token, Clock: 2}, "no such message"},
	} {
		m, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: 4})
		require.NoError(t, err)
		_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 2, Clock: 2})
		require.NoError(t, err)
		tt.msg.From, tt.msg.To = 2, 1
		_, err = m.Handle(tt.msg)
		require.ErrorIs(t, err, dmutex.ErrPeer)
		require.ErrorContains(t, err, tt.why)
	}
}

// A REQUEST that is repeated while it is in the queue, and a RELEASE that is
// not about the request there, change no queue and are not answered.
func TestRepeated(t *testing.T) {
	born, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	m := born.(*machine)
	for _, tt := range []struct {
		kind           dmutex.Kind
		attempt, clock uint64
		answers        int
		queued         uint64
	}{
		{dmutex.Release, 1, 2, 0, 0},
		{dmutex.Request, 3, 3, 1, 3},
		{dmutex.Request, 3, 3, 0, 3},
		{dmutex.Release, 1, 2, 0, 3},
		{dmutex.Release, 3, 4, 0, 0},
		{dmutex.Release, 3, 4, 0, 0},
	} {
		out, err := m.Handle(dmutex.Message{Kind: tt.kind, From: 2, To: 1, Attempt: tt.attempt, Clock: tt.clock})
		require.NoError(t, err)
		require.Len(t, out, tt.answers, tt)
		require.Equal(t, tt.queued, m.waiting(2), tt)
	}
}
