package ring

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestMutants(t *testing.T) {
	machinetest.ExploreAll(t, []machinetest.Exploration{
		{
			Name: "two-tokens",
			Algorithm: machinetest.Probe[*parked]{}.Of(func(s dmutex.Start) (dmutex.Machine, error) {
				m, err := New(s)
				if err == nil {
					m.(*parked).token = true
				}
				return m, err
			}),
			Nodes: 2, Requests: []int{2},
			Want: dmutextest.ErrMutualExclusion,
		},
		{
			Name:      "unordered", // WANT overtakes the token
			Algorithm: New,
			Nodes:     3, Requests: []int{2},
			Network: dmutextest.Network{Unordered: true},
			Want:    dmutextest.ErrDeadlock,
		},
		{
			Name:      "repeated", // the token is there twice
			Algorithm: New,
			Nodes:     3, Requests: []int{2},
			Network: dmutextest.Network{Duplicates: 1},
			Want:    dmutextest.ErrMutualExclusion,
		},
		{
			Name: "token-without-fence",
			Algorithm: machinetest.Probe[*parked]{
				Handle: func(m *parked, msg dmutex.Message) ([]dmutex.Message, error) {
					msg.Fence = 0
					return m.Handle(msg)
				},
			}.Of(New),
			Nodes: 2, Requests: []int{2},
			Want: dmutextest.ErrFenceOrder,
		},
		{
			Name: "excludes-when-first", // the token may have left
			Algorithm: machinetest.Probe[*parked]{
				Excludes: func(m *parked, _ dmutex.NodeID) bool { return m.first },
			}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
		{
			Name: "excludes-when-it-waits", // others may come first
			Algorithm: machinetest.Probe[*parked]{
				Excludes: func(m *parked, _ dmutex.NodeID) bool { return m.Pending() },
			}.Of(New),
			Nodes: 2, Requests: []int{1},
			Want: dmutextest.ErrExcluded,
		},
	})
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "ring.go", []machinetest.Edit{
		{"two tokens begin", "s.Holder == dmutex.None && first", "first", "TestExplore"},
		{"no token begins", "s.Holder == s.Self || ", "", "TestExplore"},
		{"begins at the first node", "site.Home(s, home) == s.Self", "site.Home(s, home) > 0 && i == 0", "TestExcludes"},
		{"token kept", "t.token = false", "t.token = true", "TestExplore"},
		{"token not taken", "t.token = true", "", "TestExplore"},
		{"fence not heard", "t.Witness(0, msg.Fence)", "", "TestExplore"},
		{"does not enter", "if t.Pending() {", "if false {", "TestExplore"},
		{"order not checked", "!slices.Equal(slices.Sorted(slices.Values(order)), own.Members())", "false", "TestRefusedConfiguration"},
	})
	machinetest.Kill(t, "parked.go", []machinetest.Edit{
		{"WANT though the token is here", "if m.token {\n\t\tm.Enter()\n\t} else {", "{", "TestExplore"},
		{"own WANT goes on", "case node == m.Self():", "case false:", "TestExplore"},
		{"WANT not noted", "!noted", "noted", "TestExplore"},
		{"WANT noted twice", "!noted", "!noted || true", "TestNotedOnce"},
		{"WANT does not wake the token", "\t\tm.passIfWanted()\n\tdefault", "\tdefault", "TestExplore"},
		{"WANT not sent on", "\t\tm.sendWant(node, msg.Attempt)\n", "", "TestExplore"},
		{"name not lost", "return node == m.Self()", "return false", "TestExplore"},
		{"all names lost", "return node == m.Self()", "return true", "TestExplore"},
		{"not passed on arrival", "m.take(msg)\n\tm.passIfWanted()", "m.take(msg)", "TestExplore"},
		{"passed though in use", "m.rests() && ", "", "TestExplore"},
		{"passed though not wanted", " && len(m.wanters) > 0 {", " {", "TestExplore"},
		{"names kept", "m.wanters = m.wanters[:0]", "", "TestExplore"},
	})
	machinetest.Kill(t, "circulating.go", []machinetest.Edit{
		{"any pace", "pace < 1", "false", "TestRefusedConfiguration"},
		{"ticks while in use", "if m.rests() {", "if m.token {", "TestExploreCirculating"},
		{"never passed", "m.rested == m.pace", "false", "TestPace"},
		{"passed too soon", "m.rested == m.pace", "true", "TestPace"},
		{"rests shorter and shorter", "m.rested = 0", "", "TestPace"},
		{"kept on leaving", "return nil, err\n\t}\n\tm.passOn()", "return nil, err\n\t}", "TestExploreCirculating"},
		{"passed to itself", "m.after != m.Self()", "true", "TestMachineCirculating"},
	})
	machinetest.Kill(t, "contract.go", []machinetest.Edit{
		{"from anybody", "case msg.From != t.before:", "case false:", "TestRefuses"},
		{"a second token", "msg.Kind == dmutex.Token && t.token", "false", "TestRefuses"},
		{"token forgotten", "m.Idle() && len(m.wanters) == 0 && m.token == m.first", "m.Idle()", "TestMachine"},
		{"excludes without the token", "bool { return t.token }", "bool { return true }", "TestExplore"},
		{"does not exclude", "bool { return t.token }", "bool { return t.token && !t.Idle() }", "TestExcludes"},
	})
}
