package membership_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

// The machines of a lock survive a view change, whenever each node freezes and acts: at most one
// node holds the lock, fences rise, and every request is granted in the old or the new view. The
// last node may restart between the views, and then loses its hold or request.
func TestAcross(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		name        string
		n, requests int
		states      [2]int // without a restart, and with one
		long        bool
	}{
		{"central", 3, 1, [2]int{1_977, 1_779}, false},
		{"lamport", 2, 2, [2]int{8_409, 7_122}, false},
		{"lamport", 3, 1, [2]int{1_935_862, 1_870_261}, true},
		{"lamport.OmitReplies", 2, 2, [2]int{5_548, 4_666}, false},
		{"lamport.OmitReplies", 3, 1, [2]int{733_230, 705_875}, true},
		{"ricart", 3, 1, [2]int{11_986, 11_595}, false},
		{"ricart.Carvalho", 3, 1, [2]int{11_991, 11_600}, false},
		{"maekawa", 3, 1, [2]int{10_594, 9_930}, false},
		{"suzukikasami", 3, 1, [2]int{4_250, 3_868}, false},
		{"ring", 3, 1, [2]int{2_698, 2_450}, false},
	} {
		for i, restarts := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, %d nodes, restart %v", tt.name, tt.n, restarts), func(t *testing.T) {
				switch {
				case tt.long:
					machinetest.Long(t)
				case tt.states[i] > 6_000:
					machinetest.Thorough(t)
				}
				first, err := newCrossing(algorithms.Named(tt.name), tt.n, tt.requests, restarts)
				require.NoError(t, err)
				r, err := search.Search[*crossing, crossed]{
					First: first,
					State: (*crossing).rests,
					Ends:  dmutextest.ErrLivelock,
				}.Run()
				require.NoError(t, err)
				require.True(t, r.Complete)
				require.Equal(t, tt.states[i], r.States)
			})
		}
	}
}

// A crossing is one lock while the view changes from epoch 1 to epoch 2.
type crossing struct {
	algorithm dmutex.Algorithm
	restarts  bool // whether the last node restarts between the views
	nodes     []crosser
	wire      []letter // in the order in which they were sent
	last      uint64   // the highest fence of a grant
}

// A crosser is one node.
type crosser struct {
	epoch    uint64
	machine  dmutex.Machine // nil while it is frozen
	requests int            // that it will still make
	waits    bool
	hold     uint64 // the fence by which its caller holds the lock, 0 if it does not
	reported bool   // it held the lock as it froze
}

type letter struct {
	epoch uint64
	dmutex.Message
}

func newCrossing(algorithm dmutex.Algorithm, n, requests int, restarts bool) (*crossing, error) {
	w := &crossing{algorithm: algorithm, restarts: restarts, nodes: make([]crosser, n)}
	for i := range w.nodes {
		w.nodes[i] = crosser{epoch: 1, requests: requests}
		if err := w.born(i, dmutex.None); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *crossing) born(i int, holder dmutex.NodeID) (err error) {
	p := &w.nodes[i]
	p.machine, err = w.algorithm(dmutex.Start{
		Self: dmutex.NodeID(i + 1), Members: dmutextest.Nodes(len(w.nodes)), Holder: holder, Fence: epochs.First(p.epoch), Limit: epochs.Last(p.epoch),
	})
	return err
}

func (w *crossing) Clone(*crossing) *crossing {
	c := *w
	c.nodes, c.wire = slices.Clone(w.nodes), slices.Clone(w.wire)
	for i := range c.nodes {
		if m := c.nodes[i].machine; m != nil {
			c.nodes[i].machine = m.Clone()
		}
	}
	return &c
}

func (w *crossing) AppendState(b []byte) []byte {
	for i := range w.nodes {
		p := &w.nodes[i]
		b = fmt.Appendf(b, "%d %d %v %d %v ", p.epoch, p.requests, p.waits, p.hold, p.reported)
		if p.machine != nil {
			b, _ = p.machine.AppendText(b)
		}
		b = append(b, '\n')
	}
	channels := slices.Clone(w.wire)
	slices.SortStableFunc(channels, func(a, b letter) int { return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To)) })
	for _, l := range channels {
		b = fmt.Appendf(b, "%d %v\n", l.epoch, l.Message)
	}
	return fmt.Append(b, w.last)
}

type crossed = search.Event[*crossing]

func (w *crossing) Do(step crossed) error { return step.Do(w) }

func (w *crossing) Tell(b []byte, step crossed, _ *crossing) []byte { return fmt.Appendln(b, step) }

// Steps lists what may happen.
func (w *crossing) Steps(steps []crossed) []crossed {
	add := func(do func(*crossing) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	for k, l := range w.wire {
		earlier := slices.ContainsFunc(w.wire[:k], func(e letter) bool { return e.From == l.From && e.To == l.To })
		if p := &w.nodes[l.To-1]; p.machine != nil && p.epoch == l.epoch && !earlier {
			add(func(w *crossing) error {
				w.wire = slices.Delete(w.wire, k, k+1)
				return w.input(int(l.To-1), func(m dmutex.Machine) ([]dmutex.Message, error) { return m.Handle(l.Clone()) })
			}, "deliver %v", l.Message)
		}
	}
	frozen := !slices.ContainsFunc(w.nodes, func(p crosser) bool { return p.epoch == 1 })
	for i, p := range w.nodes {
		if p.requests > 0 && p.hold == 0 && !p.waits && p.machine != nil {
			add(func(w *crossing) error {
				w.nodes[i].requests--
				w.nodes[i].waits = true
				return w.input(i, dmutex.Machine.Request)
			}, "%d requests", i+1)
		}
		if p.hold != 0 {
			add(func(w *crossing) error {
				if w.nodes[i].hold = 0; p.machine == nil {
					return nil
				}
				return w.input(i, dmutex.Machine.Release)
			}, "%d releases", i+1)
		}
		if p.epoch == 1 {
			add(func(w *crossing) error { w.freeze(i); return nil }, "%d freezes", i+1)
		}
		if p.machine == nil && frozen {
			add(func(w *crossing) error { return w.act(i) }, "%d acts", i+1)
		}
	}
	return steps
}

// freeze ends the old machine of node i. Messages to it are dropped.
func (w *crossing) freeze(i int) {
	p := &w.nodes[i]
	if p.epoch, p.machine = 2, nil; w.restarts && i == len(w.nodes)-1 {
		p.hold, p.waits = 0, false
	}
	p.reported = p.hold != 0
	w.wire = slices.DeleteFunc(w.wire, func(l letter) bool { return l.To == dmutex.NodeID(i+1) && l.epoch == 1 })
}

// act lets the new machine of node i begin, with the holder that was reported.
func (w *crossing) act(i int) error {
	holder := dmutex.NodeID(1 + slices.IndexFunc(w.nodes, func(p crosser) bool { return p.reported }))
	if err := w.born(i, holder); err != nil {
		return err
	}
	p := &w.nodes[i]
	if p.reported && p.hold == 0 {
		if err := w.input(i, dmutex.Machine.Release); err != nil {
			return err
		}
	}
	if p.waits {
		return w.input(i, dmutex.Machine.Request)
	}
	return nil
}

// input lets the machine of node i do something.
func (w *crossing) input(i int, do func(dmutex.Machine) ([]dmutex.Message, error)) error {
	p := &w.nodes[i]
	out, err := do(p.machine)
	if err != nil {
		return search.Wrong(dmutextest.ErrRefused, "node %d: %v", i+1, err)
	}
	for _, m := range out {
		if epochs.Of(m.Fence) != p.epoch {
			return search.Wrong(dmutextest.ErrContract, "%v does not name epoch %d", m, p.epoch)
		}
		if w.nodes[m.To-1].epoch <= p.epoch {
			w.wire = append(w.wire, letter{p.epoch, m.Clone()})
		}
	}
	if !p.waits || p.machine.Phase() != dmutex.Held {
		return nil
	}
	p.waits, p.hold = false, p.machine.Fence()
	for j, other := range w.nodes {
		if j != i && other.hold != 0 {
			return search.Wrong(dmutextest.ErrMutualExclusion, "%d and %d hold the lock", i+1, j+1)
		}
	}
	if p.hold <= w.last {
		return search.Wrong(dmutextest.ErrFenceOrder, "%d is granted by %d, after %d", i+1, p.hold, w.last)
	}
	w.last = p.hold
	return nil
}

// rests checks a state in which nothing happens anymore.
func (w *crossing) rests() error {
	if len(w.Steps(nil)) > 0 {
		return nil
	}
	for i, p := range w.nodes {
		if p.waits {
			return search.Wrong(dmutextest.ErrDeadlock, "%d waits forever", i+1)
		}
	}
	return nil
}
