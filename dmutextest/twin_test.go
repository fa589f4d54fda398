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
)

// A world is the dumb twin of the explorer's model: the machines themselves,
// the messages themselves, and no table of anything. It knows only whole
// states, by their text.
type world struct {
	machines          []dmutextest.Machine
	requests, cancels []int
	last              uint64
	wire              []string // of each channel's or, if unordered, of all messages
	messages          map[string]dmutex.Message
	duplicates, loses int
}

func (w world) clone() world {
	w.machines = slices.Clone(w.machines)
	w.requests, w.cancels, w.wire = slices.Clone(w.requests), slices.Clone(w.cancels), slices.Clone(w.wire)
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
	s := fmt.Sprint(w.requests, w.cancels, w.last, w.duplicates, w.loses, wire)
	for _, m := range w.machines {
		b, _ := m.AppendText(nil)
		s += "\n" + string(b)
	}
	return s
}

// input gives node i an input and puts what it sends on the wire.
func (w world) input(i int, f func(dmutex.Machine) ([]dmutex.Message, error)) world {
	w = w.clone()
	m := w.machines[i].Clone().(dmutextest.Machine)
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
		if w.loses > 0 {
			gone.loses--
			all = append(all, gone)
		}
	}
	return all
}

// The explorer and its twin find the same number of states and steps.
func TestExploreTwin(t *testing.T) {
	unordered := dmutextest.Unordered
	repeating := dmutextest.Network{Unordered: true, Duplicates: 2}
	for _, tt := range []struct {
		name              string
		algorithm         dmutex.Algorithm
		nodes             int
		requests, cancels int
		network           dmutextest.Network
	}{
		{"ricart", ricart.New, 2, 2, 0, dmutextest.FIFO},
		{"ricart", ricart.New, 2, 3, 3, unordered},
		{"ricart", ricart.New, 2, 2, 2, dmutextest.FIFO},
		{"ricart", ricart.New, 3, 1, 0, unordered},
		{"ricart", ricart.New, 3, 1, 0, dmutextest.FIFO},
		{"ricart", ricart.New, 2, 1, 1, repeating},
		{"central", central.New, 3, 2, 0, unordered},
		{"central", central.New, 3, 1, 1, unordered},
		{"central", central.At(2), 3, 2, 1, dmutextest.FIFO},
	} {
		t.Run(fmt.Sprint(tt.name, " ", tt.nodes, "x", tt.requests, "-", tt.cancels, " ", tt.network), func(t *testing.T) {
			members := dmutextest.Nodes(tt.nodes)
			r, err := dmutextest.Explore(dmutextest.Config{
				Algorithm: tt.algorithm, Members: members, Network: tt.network,
				Requests: []int{tt.requests}, Cancels: []int{tt.cancels},
			})
			require.NoError(t, err)

			begin := world{messages: map[string]dmutex.Message{}, duplicates: tt.network.Duplicates}
			for _, self := range members {
				m, err := tt.algorithm(dmutex.Start{Self: self, Members: members})
				require.NoError(t, err)
				begin.machines = append(begin.machines, m.(dmutextest.Machine))
				begin.requests, begin.cancels = append(begin.requests, tt.requests), append(begin.cancels, tt.cancels)
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
