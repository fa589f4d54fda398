package lamport

import (
	"slices"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/machinetest"
)

// Lamport's algorithm needs channels that keep the order. With all replies one
// that overtakes a REQUEST lets two nodes in; where they are omitted, a RELEASE
// that overtakes its REQUEST leaves it in the queue.
func TestNeedsOrder(t *testing.T) {
	for _, tt := range []struct {
		name      string
		algorithm dmutex.Algorithm
		kind      error
	}{
		{"plain", New, dmutextest.ErrMutualExclusion},
		{"omit", OmitReplies, dmutextest.ErrLeftBehind},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dmutextest.Refute(t, dmutextest.Config{
				Algorithm: tt.algorithm,
				Members:   dmutextest.Nodes(2),
				Requests:  []int{1},
				Network:   dmutextest.Unordered,
			}, tt.kind, "testdata/unordered-"+tt.name+".txt")
		})
	}
}

// Without one of the rules something goes wrong; the shortest run that shows it
// is in testdata.
func TestMutants(t *testing.T) {
	type probe = machinetest.Probe[*Machine]
	for _, tt := range []struct {
		name            string
		probe           probe
		nodes, requests int
		kind            error
	}{
		// The clock moves up to that of the message, not past it: a REPLY is
		// no later than what it answers.
		{"clock-not-past", probe{
			Before: func(m *Machine, msg *dmutex.Message) bool {
				if msg.Kind != dmutex.Reply {
					return false
				}
				m.witness(slices.Index(m.site.Peers(), msg.From), *msg)
				m.tryEnter()
				return true
			},
			After: func(_ *Machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for i := range out {
					if out[i].Kind == dmutex.Reply {
						out[i].Clock--
					}
				}
				return out, nil
			},
		}, 2, 1, dmutextest.ErrDeadlock},

		{"release-without-fence", probe{
			After: func(_ *Machine, out []dmutex.Message) ([]dmutex.Message, error) {
				for i := range out {
					if out[i].Kind == dmutex.Release {
						out[i].Fence = 0
					}
				}
				return out, nil
			},
		}, 2, 1, dmutextest.ErrFenceOrder},

		// L1 is not awaited.
		{"no-l1", probe{
			After: func(m *Machine, out []dmutex.Message) ([]dmutex.Message, error) {
				if m.site.Pending() {
					for j := range m.later {
						m.later[j] = true
					}
				}
				m.tryEnter()
				return out, nil
			},
		}, 2, 1, dmutextest.ErrMutualExclusion},

		// L2 does not look at the requests of others.
		{"no-l2", probe{
			Before: func(m *Machine, msg *dmutex.Message) bool {
				if m.site.Pending() {
					m.queue = nil
				}
				return false
			},
			After: func(m *Machine, out []dmutex.Message) ([]dmutex.Message, error) {
				if m.site.Pending() {
					m.queue = nil
					m.tryEnter()
				}
				return out, nil
			},
		}, 2, 1, dmutextest.ErrMutualExclusion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dmutextest.Refute(t, dmutextest.Config{
				Algorithm: tt.probe.Of(New),
				Members:   dmutextest.Nodes(tt.nodes),
				Requests:  []int{tt.requests},
			}, tt.kind, "testdata/mutant-"+tt.name+".txt")
		})
	}
}

// Each guard is needed: without it a test fails. With DMUTEX_LONG=1.
func TestKill(t *testing.T) {
	machinetest.Kill(t, "lamport.go", []machinetest.Edit{
		{"no tick on a message", "m.site.Tick()\n\tif", "if", "TestExplore"},
		{"no tick on leaving", "m.site.Tick()\n\tm.broadcast", "m.broadcast", "TestExplore"},
		{"fence and clock not heard", "m.site.Witness(msg.Clock, msg.Fence)", "m.site.Witness(0, msg.Fence)", "TestExplore"},
		{"only the fence not heard", "m.site.Witness(msg.Clock, msg.Fence)", "m.site.Witness(msg.Clock, 0)", "TestExplore"},
		{"what came before counts", "clear(m.later)", "", "TestMachine"},
		{"L1 for anything", "m.site.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From})", "msg.Clock > 0", "TestExplore"},
		{"L1 by time only", "m.site.Stamp().Less(dmutex.Stamp{Clock: msg.Clock, Node: msg.From})", "m.site.Stamp().Clock < msg.Clock", "TestExplore"},
		{"no L1", "!slices.Contains(m.later, false) && ", "", "TestExplore"},
		{"no L2", " && (len(m.queue) == 0 || mine.Less(m.queue[0]))", "", "TestExplore"},
		{"L2 reversed", "mine.Less(m.queue[0])", "m.queue[0].Less(mine)", "TestExplore"},
		{"omits all", "ours := m.site.Stamp().Clock != 0", "ours := true", "TestExplore"},
		{"omits nothing", "ours := m.site.Stamp().Clock != 0", "ours := false", "TestExplore"},
		{"answers while held", "ours := m.site.Stamp().Clock != 0", "ours := m.site.Pending()", "TestExplore"},
		{"release not heard", "case dmutex.Release:\n\t\tm.release(msg)", "", "TestExplore"},
		{"the last is first", "slices.Insert(m.queue, at, r)", "slices.Insert(m.queue, at-at, r)", "TestExplore"},
		{"any release", "slices.Index(m.queue, dmutex.Stamp{Clock: msg.Attempt, Node: msg.From})", "len(m.queue)-1", "TestRepeated"},
		{"repeated request", "msg.Attempt <= m.waiting(msg.From)", "false", "TestRepeated"},
		{"holder not queued", "m.queue = []dmutex.Stamp{{Clock: dmutex.Carried, Node: s.Holder}}", "", "TestExplore"},
		{"ghost does not leave", "&& !m.site.Enter() {", "&& !m.site.Enter() && false {", "TestExplore"},
		{"forgets others' requests", "ok && len(m.queue) == 0", "ok", "TestMachine"},
	})
}
