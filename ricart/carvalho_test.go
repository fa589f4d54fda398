package ricart

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

func TestCarvalhoMachine(t *testing.T) { dmutextest.TestMachine(t, Carvalho) }

func FuzzCarvalho(f *testing.F) { dmutextest.FuzzMachine(f, Carvalho) }

func BenchmarkCarvalho(b *testing.B) { dmutextest.BenchmarkMachine(b, Carvalho) }

type carvalhoProbe = machinetest.Probe[*carvalho]

// lawfulCarvalho checks after each step what should hold of a machine.
var lawfulCarvalho = carvalhoProbe{After: func(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
	for j := range m.kept {
		switch {
		case m.kept[j] && m.deferred[j] != 0:
			return nil, dmutex.Misuse("a permission that is asked for is kept")
		case m.kept[j] && m.awaiting[j]:
			return nil, dmutex.Misuse("a permission that is kept is awaited")
		case m.deferred[j] != 0 && m.Stamp().Clock == 0:
			return nil, dmutex.Misuse("an idle node owes a reply")
		}
	}
	return out, nil
}}

// An entry costs between 0 and 2(N-1) messages. The channels may reorder and
// repeat messages; a REQUEST that is repeated is answered again. The long rows
// take 10 seconds.
func TestCarvalhoExplore(t *testing.T) {
	fifo, unordered := dmutextest.FIFO, dmutextest.Unordered
	repeats := dmutextest.Network{Unordered: true, Duplicates: 2}
	const short, long = false, true
	for _, tt := range []struct {
		name              string
		network           dmutextest.Network
		requests, cancels []int // by node
		holder            dmutex.NodeID
		long              bool
		states            int
		least, greatest   int // messages
	}{
		{"2x3 cancelled", fifo, []int{3, 3}, []int{3}, 0, short, 5_884, 4, 12},
		{"2x3 cancelled", unordered, []int{3, 3}, []int{3}, 0, short, 6_960, 4, 12},
		{"2x3 cancelled", repeats, []int{3, 3}, []int{1}, 0, short, 387_136, 4, 14},
		{"2x3 carried over", unordered, []int{3, 3}, []int{1}, 2, short, 2_806, 4, 12},
		{"3x1 cancelled", unordered, []int{1, 1, 1}, []int{1}, 0, short, 19_668, 12, 12},
		{"3x1 carried over", unordered, []int{1, 1, 1}, []int{1}, 3, short, 19_917, 12, 12},
		{"3x1", repeats, []int{1, 1, 1}, []int{0}, 0, short, 182_776, 12, 18},
		{"3x2", fifo, []int{2, 2, 2}, []int{0}, 0, short, 15_638, 12, 24},
		{"3x2", unordered, []int{2, 2, 2}, []int{0}, 0, short, 24_504, 12, 24},
		{"3x2 cancelled", fifo, []int{2, 2, 2}, []int{1}, 0, short, 260_422, 12, 24},
		{"3x3", unordered, []int{3, 3, 3}, []int{0}, 0, short, 246_255, 12, 36},
		{"3x2 cancelled", unordered, []int{2, 2, 2}, []int{2}, 0, long, 854_685, 12, 24},
		{"4x1", fifo, []int{1, 1, 1, 1}, []int{0}, 0, long, 1_484_820, 24, 24},
		{"4x1", unordered, []int{1, 1, 1, 1}, []int{0}, 0, long, 2_226_965, 24, 24},
	} {
		t.Run(tt.name+", "+tt.network.String(), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			r := machinetest.Explore(t, dmutextest.Config{
				Algorithm: lawfulCarvalho.Of(Carvalho),
				Members:   dmutextest.Nodes(len(tt.requests)),
				Network:   tt.network,
				Requests:  tt.requests,
				Cancels:   tt.cancels,
				Holder:    tt.holder,
			})
			require.Equal(t, []int{tt.states, tt.least, tt.greatest}, []int{r.States, r.Least, r.Greatest})
		})
	}
}

// leaveAtOnce withdraws a cancelled request from the protocol.
func leaveAtOnce(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
	if m.Pending() && m.Phase() == dmutex.Idle {
		m.Enter()
		clear(m.awaiting)
		m.replyDeferred()
		return m.Out(), nil
	}
	return out, nil
}

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestCarvalhoMutants(t *testing.T) {
	for _, tt := range []struct {
		name              string
		probe             carvalhoProbe
		nodes             int
		requests, cancels int
		kind              error
	}{
		{
			"not-asked-back", carvalhoProbe{
				After: func(_ *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
					if len(out) == 2 && out[0].Kind == dmutex.Reply && out[1].Kind == dmutex.Request {
						return out[:1], nil
					}
					return out, nil
				},
			}, 3, 2, 0, dmutextest.ErrDeadlock,
		}, {
			"late-reply-kept", // by a node that has left the protocol
			carvalhoProbe{
				Before: func(m *carvalho, msg *dmutex.Message) bool {
					j := slices.Index(m.Peers(), msg.From)
					late := msg.Kind == dmutex.Reply && !m.awaiting[j]
					m.kept[j] = m.kept[j] || late
					return late
				},
				After: leaveAtOnce,
			}, 2, 2, 1, dmutextest.ErrMutualExclusion,
		}, {
			"late-reply-counted", // for the next request
			carvalhoProbe{
				Before: func(m *carvalho, msg *dmutex.Message) bool {
					if msg.Kind == dmutex.Reply && m.Pending() {
						msg.Attempt = m.Stamp().Clock
					}
					return false
				},
				After: leaveAtOnce,
			}, 2, 2, 1, dmutextest.ErrMutualExclusion,
		}, {
			"given-and-kept", // the REPLY does not give the permission away
			carvalhoProbe{
				After: func(m *carvalho, out []dmutex.Message) ([]dmutex.Message, error) {
					for _, o := range out {
						if o.Kind == dmutex.Reply {
							m.kept[slices.Index(m.Peers(), o.To)] = true
						}
					}
					return out, nil
				},
			}, 2, 2, 0, dmutextest.ErrMutualExclusion,
		}, {
			"reply-without-fence", carvalhoProbe{
				Before: func(_ *carvalho, msg *dmutex.Message) bool {
					msg.Fence = 0
					return false
				},
			}, 2, 1, 0, dmutextest.ErrFenceOrder,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dmutextest.Refute(t, dmutextest.Config{
				Algorithm: tt.probe.Of(Carvalho),
				Members:   dmutextest.Nodes(tt.nodes),
				Requests:  []int{tt.requests},
				Cancels:   []int{tt.cancels},
			}, tt.kind, "testdata/carvalho-mutant-"+tt.name+".txt")
		})
	}
}

// A node may leave the protocol at once if it throws away the REPLY that comes
// too late: then neither of the two has the other's permission. See the mutants
// late-reply-kept and late-reply-counted.
func TestCarvalhoLateReplyThrownAway(t *testing.T) {
	machinetest.Explore(t, dmutextest.Config{
		Algorithm: carvalhoProbe{After: leaveAtOnce}.Of(Carvalho),
		Members:   dmutextest.Nodes(2),
		Requests:  []int{3},
		Cancels:   []int{2},
		Network:   dmutextest.Unordered,
	})
}

// While nobody else asks, a node that has entered enters again without a
// message; and it need ask only those who asked since.
func TestCarvalhoCost(t *testing.T) {
	const n = 5
	machines := make([]dmutex.Machine, n)
	for i, self := range dmutextest.Nodes(n) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(n)})
		require.NoError(t, err)
		machines[i] = m
	}
	enter := func(node int) (messages int) {
		m := machines[node-1]
		wire, err := m.Request()
		require.NoError(t, err)
		for wire = slices.Clone(wire); len(wire) > 0; messages++ {
			out, err := machines[wire[0].To-1].Handle(wire[0])
			require.NoError(t, err)
			wire = append(wire[1:], out...)
		}
		require.Equal(t, dmutex.Held, m.Phase())
		_, err = m.Release()
		require.NoError(t, err)
		return messages
	}
	for _, tt := range []struct{ node, messages int }{
		{1, 2 * (n - 1)},
		{1, 0},
		{1, 0},
		{2, 2 * (n - 1)},
		{2, 0},
		{1, 2}, // asks 2
		{1, 0},
		{2, 2}, // asks 1
		{3, 2 * (n - 1)},
		{1, 2 * 2}, // asks 2 and 3
	} {
		require.Equal(t, tt.messages, enter(tt.node), tt)
	}
}

// "One node that stops answering stops those that must ask it and, through those
// who wait for it, everybody who must ask them."
func TestCarvalhoCrash(t *testing.T) {
	down := dmutex.None
	machines := make([]dmutex.Machine, 3)
	for i, self := range dmutextest.Nodes(3) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(3)})
		require.NoError(t, err)
		machines[i] = m
	}
	one, two := machines[0], machines[1]
	send := func(out []dmutex.Message, err error) {
		require.NoError(t, err)
		for wire := slices.Clone(out); len(wire) > 0; wire = wire[1:] {
			if wire[0].To != down {
				out, err := machines[wire[0].To-1].Handle(wire[0])
				require.NoError(t, err)
				wire = append(wire, out...)
			}
		}
	}
	send(one.Request())
	send(one.Release())
	down = 3
	send(one.Request())
	require.Equal(t, dmutex.Held, one.Phase(), "it has all permissions")
	send(one.Release())
	send(two.Request())
	require.Equal(t, dmutex.Waiting, two.Phase(), "it must ask the dead node")
	send(one.Request())
	require.Equal(t, dmutex.Waiting, one.Phase(), "it must ask the one that waits")
}

// Grants follow stamps only where requests conflict: taken for fences, stamps
// go down.
func TestCarvalhoOrder(t *testing.T) {
	dmutextest.Refute(t, dmutextest.Config{
		Algorithm: carvalhoProbe{Fence: func(m *carvalho) uint64 {
			return m.Stamp().Clock<<8 | uint64(m.Self())
		}}.Of(Carvalho),
		Members:  dmutextest.Nodes(2),
		Requests: []int{3},
	}, dmutextest.ErrFenceOrder, "testdata/carvalho-order.txt")
}

// An idle node may forget its permissions, and then asks again.
func TestCarvalhoForget(t *testing.T) {
	for _, self := range dmutextest.Nodes(2) {
		m, err := Carvalho(dmutex.Start{Self: self, Members: dmutextest.Nodes(2)})
		require.NoError(t, err)
		_, _, ok := m.(*carvalho).Forget()
		require.True(t, ok)
	}
	m, err := Carvalho(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	c := m.(*carvalho)
	_, err = c.Request()
	require.NoError(t, err)
	_, err = c.Handle(dmutex.Message{Kind: dmutex.Reply, From: 2, To: 1, Attempt: 1})
	require.NoError(t, err)
	require.False(t, c.Keeps(), "it is not idle")
	_, err = c.Release()
	require.NoError(t, err)
	clock, fence, ok := c.Forget()
	require.True(t, ok)
	require.True(t, c.Keeps())
	again, err := Carvalho(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: clock, Fence: fence})
	require.NoError(t, err)
	out, err := again.Request()
	require.NoError(t, err)
	require.Len(t, out, 1)
	_, err = c.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 2})
	require.NoError(t, err)
	require.False(t, c.Keeps())
}

func TestCarvalhoConversations(t *testing.T) {
	dmutextest.TestScript(t, Carvalho, "testdata/carvalho.txt")
	dmutextest.TestScript(t, Carvalho, "testdata/carvalho-asked-back.txt")
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestCarvalhoKill(t *testing.T) {
	machinetest.Kill(t, "carvalho.go", []machinetest.Edit{
		{"asks everybody", "if !kept {", "if !kept || true {", "TestCarvalhoExplore"},
		{"asks nobody", "if !kept {", "if !kept && false {", "TestCarvalhoExplore"},
		{"does not give", "m.kept[j] = false\n", "\n", "TestCarvalhoExplore"},
		{"does not keep", "m.kept[j] = m.deferred[j] == 0", "", "TestCarvalhoExplore"},
		{"keeps what it owes", "m.kept[j] = m.deferred[j] == 0", "m.kept[j] = true", "TestCarvalhoExplore"},
		{"keeps an old reply", "if m.answers(j, msg) {", "{", "TestCarvalhoExplore"},
		{"does not ask back", "\t\tm.ask(j)\n\t}\n}\n\n// reply", "\t}\n}\n\n// reply", "TestCarvalhoExplore"},
		{"asks back though it owes", " && m.deferred[j] == 0 {", " {", "TestCarvalhoExplore"},
		{"asks back what it awaits", " && !m.awaiting[j]", "", "TestCarvalhoConversations"},
		{"asks back for nothing", "m.Pending() && ", "", "TestCarvalhoExplore"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"keeps nothing", "m.Idle() && slices.Contains(m.kept, true)", "slices.Contains(m.kept, true) && false", "TestCarvalhoExplore"},
	})
}
