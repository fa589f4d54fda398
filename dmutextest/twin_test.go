package dmutextest_test

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
)

// A world is the simple twin of the explorer's model: machines and messages, and no
// tables. It knows only whole states, by their text.
type world struct {
	machines                 []dmutex.Machine
	requests, cancels, ticks []int
	last                     uint64
	wire                     []string // oldest first
	messages                 map[string]dmutex.Message
	duplicates, losses       int
}

func (w world) clone() world {
	w.machines = slices.Clone(w.machines)
	w.requests, w.cancels = slices.Clone(w.requests), slices.Clone(w.cancels)
	w.ticks, w.wire = slices.Clone(w.ticks), slices.Clone(w.wire)
	return w
}

func (w world) text(unordered bool) string {
	wire := slices.Clone(w.wire)
	channel := func(s string) string { c, _, _ := strings.Cut(s, " "); return c }
	if unordered {
		sort.Strings(wire)
	} else {
		sort.SliceStable(wire, func(i, j int) bool { return channel(wire[i]) < channel(wire[j]) })
	}
	s := fmt.Sprint(w.requests, w.cancels, w.ticks, w.last, w.duplicates, w.losses, wire)
	for _, m := range w.machines {
		b, _ := m.AppendText(nil)
		s += "\n" + string(b)
	}
	return s
}

// input gives node i an input and puts what it sends on the wire.
func (w world) input(i int, f func(dmutex.Machine) ([]dmutex.Message, error)) world {
	w = w.clone()
	m := w.machines[i].Clone()
	was := m.Phase()
	out, err := f(m)
	if err != nil {
		panic(err)
	}
	w.machines[i] = m
	for _, o := range out {
		w.messages[o.String()] = o.Clone()
		w.wire = append(w.wire, o.String())
	}
	if was != dmutex.Held && m.Phase() == dmutex.Held {
		w.last = m.Fence()
	}
	return w
}

func tick(m dmutex.Machine) ([]dmutex.Message, error) {
	return m.(dmutex.Ticker).Tick()
}

// stirs reports whether a tick changes the machine or makes it send something.
func (w world) stirs(m dmutex.Machine) bool {
	if _, ok := m.(dmutex.Ticker); !ok {
		return false
	}
	c := m.Clone()
	out, _ := tick(c)
	before, _ := m.AppendText(nil)
	after, _ := c.AppendText(nil)
	return len(out) > 0 || string(before) != string(after)
}

// calm reports whether a request is pending and only time can help.
func (w world) calm() bool {
	held := func(m dmutex.Machine) bool { return m.Phase() == dmutex.Held }
	return len(w.wire) == 0 && slices.ContainsFunc(w.machines, dmutex.Machine.Pending) && !slices.ContainsFunc(w.machines, held)
}

func (w world) next(members []dmutex.NodeID, unordered bool) (all []world) {
	for i, m := range w.machines {
		switch {
		case m.Phase() == dmutex.Idle && w.requests[i] > 0:
			next := w.input(i, dmutex.Machine.Request)
			next.requests[i]--
			all = append(all, next)
		case m.Phase() == dmutex.Waiting && w.cancels[i] > 0:
			next := w.input(i, dmutex.Machine.Cancel)
			next.cancels[i]--
			all = append(all, next)
		case m.Phase() == dmutex.Held:
			all = append(all, w.input(i, dmutex.Machine.Release))
		}
		if w.stirs(m) && (w.ticks[i] > 0 || w.calm()) {
			next := w.input(i, tick)
			next.ticks[i] = max(0, next.ticks[i]-1)
			all = append(all, next)
		}
	}
	seen := map[string]bool{}
	for k, s := range w.wire {
		lane := s
		if !unordered {
			lane, _, _ = strings.Cut(s, " ")
		}
		if seen[lane] {
			continue
		}
		seen[lane] = true
		m := w.messages[s]
		deliver := func(to dmutex.Machine) ([]dmutex.Message, error) { return to.Handle(m.Clone()) }
		i := slices.Index(members, m.To)
		gone := w.clone()
		gone.wire = slices.Delete(gone.wire, k, k+1)
		all = append(all, gone.input(i, deliver))
		if w.duplicates > 0 {
			next := w.input(i, deliver)
			next.duplicates--
			all = append(all, next)
		}
		if w.losses > 0 {
			gone.losses--
			all = append(all, gone)
		}
	}
	return all
}

// A herald shares no lock. Node 1 announces each request to node 2, which echoes it. That
// works on any network.
type herald struct {
	dmutex.Machine
	self        dmutex.NodeID
	told, heard uint64
}

func newHerald(s dmutex.Start) (dmutex.Machine, error) {
	s.Members = []dmutex.NodeID{s.Self}
	m, err := ricart.New(s)
	return &herald{Machine: m, self: s.Self}, err
}

func (h *herald) Request() ([]dmutex.Message, error) {
	h.told++
	_, err := h.Machine.Request()
	return []dmutex.Message{{Kind: dmutex.Request, From: 1, To: 2, Attempt: h.told}}, err
}

func (h *herald) Handle(m dmutex.Message) ([]dmutex.Message, error) {
	h.heard = m.Attempt
	if h.self == 1 {
		return nil, nil
	}
	return []dmutex.Message{{Kind: dmutex.Reply, From: 2, To: 1, Attempt: h.heard}}, nil
}

func (h *herald) AppendText(b []byte) ([]byte, error) {
	b, err := h.Machine.AppendText(b)
	return fmt.Appendf(b, " told=%d heard=%d", h.told, h.heard), err
}

func (h *herald) Forget() (clock, known uint64, ok bool) { return 0, 0, false }
func (h *herald) Keeps() bool                            { return true }

func (h *herald) Clone() dmutex.Machine {
	return &herald{h.Machine.Clone(), h.self, h.told, h.heard}
}

// The explorer and its twin find the same number of states and steps.
func TestExploreTwin(t *testing.T) {
	unordered := dmutextest.Network{Unordered: true}
	repeating := dmutextest.Network{Unordered: true, Duplicates: 2}
	each := func(n int) []int { return []int{n, n, n} }
	for _, tt := range []struct {
		name                     string
		algorithm                dmutex.Algorithm
		nodes                    int
		requests, cancels, ticks []int // by node
		network                  dmutextest.Network
	}{
		{"ricart", ricart.New, 2, each(2), each(0), each(0), dmutextest.Network{}},
		{"ricart", ricart.New, 2, each(3), each(3), each(0), unordered},
		{"ricart", ricart.New, 2, each(2), each(2), each(0), dmutextest.Network{}},
		{"ricart", ricart.New, 3, each(1), each(0), each(0), unordered},
		{"ricart", ricart.New, 3, each(1), each(0), each(0), dmutextest.Network{}},
		{"ricart", ricart.New, 2, each(1), each(1), each(0), repeating},
		{"central", central.New, 3, each(2), each(0), each(0), unordered},
		{"central", central.New, 3, each(1), each(1), each(0), unordered},
		{"central.Witnessed", central.Witnessed, 3, each(1), each(1), each(0), unordered},
		{"central", central.At(2), 3, each(2), each(1), each(0), dmutextest.Network{}},
		{"ricart", ricart.New, 2, each(2), each(1), each(0), dmutextest.Network{Duplicates: 2}},
		{"herald", newHerald, 2, []int{3, 0}, each(0), each(0), dmutextest.Network{Losses: 2}},
		{"herald", newHerald, 2, []int{3, 0}, each(0), each(0), dmutextest.Network{Unordered: true, Duplicates: 1, Losses: 2}},
		{"circulating", ring.Circulate(2), 3, each(1), each(1), each(2), dmutextest.Network{}},
	} {
		t.Run(fmt.Sprint(tt.name, " ", tt.requests[:tt.nodes], tt.cancels[:tt.nodes], " ", tt.network), func(t *testing.T) {
			members := dmutextest.Nodes(tt.nodes)
			r, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: tt.algorithm, Members: members, Network: tt.network,
				Requests: tt.requests[:tt.nodes], Cancels: tt.cancels[:tt.nodes], Ticks: tt.ticks[:tt.nodes],
			})
			require.NoError(t, err)
			if testing.Short() && r.States > 1_000 {
				t.Skip("the twin takes a moment")
			}
			begin := world{
				requests: tt.requests, cancels: tt.cancels, ticks: tt.ticks, messages: map[string]dmutex.Message{},
				duplicates: tt.network.Duplicates, losses: tt.network.Losses,
			}
			for _, self := range members {
				m, err := tt.algorithm(dmutex.Start{Self: self, Members: members})
				require.NoError(t, err)
				begin.machines = append(begin.machines, m)
			}
			states := map[string]bool{begin.text(tt.network.Unordered): true}
			steps := 0
			for queue := []world{begin}; len(queue) > 0; queue = queue[1:] {
				for _, next := range queue[0].next(members, tt.network.Unordered) {
					steps++
					if key := next.text(tt.network.Unordered); !states[key] {
						states[key] = true
						queue = append(queue, next)
					}
				}
			}
			require.Equal(t, len(states), r.States, "states")
			require.Equal(t, steps, r.Steps, "steps")
		})
	}
}
