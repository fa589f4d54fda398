package suzukikasami

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// eager abandons the number of a canceled request at once. The next request has a
// number of its own. A token for the canceled request is still taken.
var eager = machinetest.Probe[*machine]{
	Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		if msg.Kind == dmutex.Token {
			if !m.Pending() {
				_, _ = m.Ask(dmutex.Request)
				_, _ = m.Cancel()
				m.rn[m.Place()] = m.Stamp().Clock
			}
			msg = msg.Clone() // its lists are those of another machine
			msg.Attempt, msg.Numbers[m.Place()] = m.rn[m.Place()], m.rn[m.Place()]
		}
		return m.Handle(msg)
	},
	After: func(m *machine, out []dmutex.Message) ([]dmutex.Message, error) {
		if m.Pending() && m.Phase() == dmutex.Idle {
			m.Enter()
		}
		return out, nil
	},
}

// equal is eager with the paper's rule: a request is new if RN[j] = LN[j]+1.
var equal = machinetest.Probe[*machine]{
	Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
		if j := m.place(msg.From); msg.Kind == dmutex.Request && m.token && msg.Attempt > m.ln[j]+1 {
			m.rn[j] = m.ln[j]
			return nil, nil
		}
		return eager.Handle(m, msg)
	},
	After: eager.After,
}

// The rule RN[j] > LN[j] is right even if numbers are abandoned; see the mutant
// abandoned-equal.
func TestAbandonedNumbers(t *testing.T) {
	machinetest.Explore(t, dmutextest.Config{
		Algorithm: eager.Of(New),
		Members:   dmutextest.Nodes(2),
		Requests:  []int{3},
		Cancels:   []int{2},
	})
}

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestMutants(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name: "two-tokens",
			Algorithm: machinetest.Probe[*machine]{}.Of(func(s dmutex.Start) (dmutex.Machine, error) {
				s.Home = s.Self
				return New(s)
			}),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "abandoned-equal",
			Algorithm: equal.Of(New),
			Nodes:     2, Requests: []int{2}, Cancels: []int{1},
			Want: dmutextest.ErrDeadlock,
		},
		{
			Name: "token-without-fence",
			Algorithm: machinetest.Probe[*machine]{
				Handle: func(m *machine, msg dmutex.Message) ([]dmutex.Message, error) {
					msg.Fence = 0
					return m.Handle(msg)
				},
			}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrFenceOrder,
		},
		{
			Name: "excludes-without-the-token", // as long as no request has come
			Algorithm: machinetest.Probe[*machine]{
				Excludes: func(m *machine, peer dmutex.NodeID) bool {
					return m.Idle() && m.rn[m.place(peer)] == 0
				},
			}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
		{
			Name: "excludes-after-the-token", // it may be in flight
			Algorithm: machinetest.Probe[*machine]{
				Excludes: func(m *machine, peer dmutex.NodeID) bool {
					return m.ln[m.Place()] == m.rn[m.Place()] && m.rn[m.Place()] > 0
				},
			}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
	})
}

// No message may be lost: after a lost REQUEST its sender may wait forever, after a
// lost TOKEN everybody does.
func TestNeedsDelivery(t *testing.T) {
	dmutextest.Refute(t, dmutextest.Config{
		Algorithm: New,
		Members:   dmutextest.Nodes(2),
		Requests:  []int{1},
		Network:   dmutextest.Network{Losses: 1},
	}, dmutextest.ErrDeadlock, "testdata/loss.txt")
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "suzukikasami.go", []machinetest.Edit{
		{"new if equal", "m.rn[j] > m.ln[j] {\n\t\t\tm.ln", "m.rn[j] == m.ln[j]+1 {\n\t\t\tm.ln", "TestExplore"},
		{"served is new", "m.rn[j] > m.ln[j] {\n\t\t\tm.ln", "m.rn[j] >= m.ln[j] {\n\t\t\tm.ln", "TestExplore"},
		{"LN not written when queued", "m.ln[j] = m.rn[j]\n", "\n", "TestExplore"},
		{"LN not written on a free entry", "m.ln[me] = m.rn[me]\n\t\tm.Enter()", "m.Enter()", "TestExplore"},
		{"older number overwrites", "max(m.rn[j], msg.Attempt)", "msg.Attempt", "TestExplore"},
		{"token sent while in use", " && m.Phase() == dmutex.Idle", "", "TestExplore"},
		{"token sent by any node", "m.token && m.Phase()", "m.Phase()", "TestExplore"},
		{"token kept", "m.token = false", "", "TestExplore"},
		{"Q kept", "append(m.q[:0], msg", "append(m.q, msg", "TestMachine"},
		{"Q forgotten", "m.q = append(m.q[:0], msg.Nodes...)", "", "TestExplore"},
		{"LN forgotten", "m.ln = append(m.ln[:0], msg.Numbers...)", "", "TestExplore"},
		{"any token taken", " && token.Attempt == m.Stamp().Clock", "", "TestRefuses"},
		{"token taken again", "return m.Pending() && ", "return ", "TestExplore"},
		{"search from the first member", "j := (m.Place() + i) % len(members)", "j := i - 1", "TestScripts"},
		{"ghost keeps the token", "m.Enter(); withdrawn {", "m.Enter(); withdrawn && false {", "TestExplore"},
		{"fence not heard", "m.Witness(0, msg.Fence)\n\tm.token", "m.token", "TestExplore"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"excludes without the token", "bool { return m.token }", "bool { return true }", "TestExplore"},
		{"does not exclude", "bool { return m.token }", "bool { return m.token && !m.Idle() }", "TestExcludes"},
	})
}
