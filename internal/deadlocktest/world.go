package deadlocktest

import (
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/search"
)

// An item is a message on a channel: of the application, or of the detector.
type item struct {
	kind   string // REQUEST, GRANT, WITHDRAW, or "" for the detector's
	number int    // of the wait
	msg    deadlock.Message
}

func (t item) String() string {
	if t.kind == "" {
		return fmt.Sprintf("%v %d#%d", t.msg.Kind, t.msg.Initiator, t.msg.Number)
	}
	return fmt.Sprint(t.kind, " ", t.number)
}

// A world is the state of a trial.
type world struct {
	*Trial
	withdraws int // left
	nodes     []node
}

// A node is the state of one node.
type node struct {
	Machine
	left    int      // waits
	number  int      // of its last wait
	undone  bool     // Detect is still to be called
	waits   []bool   // for which nodes
	pending []int    // the number of each node's request to it, 0 for none
	sent    [][]item // in flight to each node
}

func (n *node) blocked() bool { return slices.Contains(n.waits, true) }

func (t *Trial) begin() *world {
	w := &world{Trial: t, withdraws: t.Withdraws}
	for i, left := range t.Waits {
		n := len(t.Waits)
		m, err := t.New(id(i), dmutextest.Nodes(n))
		must(err)
		w.nodes = append(w.nodes, node{Machine: m, left: left, waits: make([]bool, n), pending: make([]int, n), sent: make([][]item, n)})
	}
	return w
}

func id(i int) dmutex.NodeID { return dmutex.NodeID(i + 1) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Clone returns a copy.
func (w *world) Clone(*world) *world {
	c := *w
	c.nodes = slices.Clone(w.nodes)
	for i := range c.nodes {
		n := &c.nodes[i]
		n.Machine, n.waits, n.pending, n.sent = w.Copy(n.Machine), slices.Clone(n.waits), slices.Clone(n.pending), slices.Clone(n.sent)
	}
	return &c
}

// AppendState appends the canonical state.
func (w *world) AppendState(b []byte) []byte {
	b = append(b, byte(w.withdraws))
	for i := range w.nodes {
		n := &w.nodes[i]
		b, _ = n.AppendText(b)
		b = append(b, '|', byte(n.left), byte(n.number))
		if n.undone {
			b = append(b, 'd')
		}
		for j, queue := range n.sent {
			b = append(b, byte(n.pending[j]), byte(len(queue)))
			for _, t := range queue {
				if t.kind != "" {
					b = append(b, t.kind[0], byte(t.number))
				} else {
					b = append(b, byte(t.msg.Kind), byte(t.msg.Initiator), byte(t.msg.Number))
				}
			}
		}
	}
	return b
}

func (w *world) send(i, j int, t item) {
	sent := w.nodes[i].sent
	sent[j] = append(slices.Clip(sent[j]), t)
}

// does sends what a detector returns.
func (w *world) does(i int, out []deadlock.Message, err error) {
	must(err)
	for _, msg := range out {
		w.send(i, int(msg.To)-1, item{msg: msg})
	}
}

type event = search.Event[*world]

// Do takes a step.
func (w *world) Do(step event) error { return step.Do(w) }

// Steps lists what may happen.
func (w *world) Steps(steps []event) []event {
	add := func(do func(*world), format string, args ...any) {
		steps = append(steps, search.NewEvent(func(w *world) error { do(w); return nil }, format, args...))
	}
	for i := range w.nodes {
		for j, queue := range w.nodes[i].sent {
			for k, t := range queue {
				if k == 0 || w.Unordered && !slices.Contains(queue[:k], t) {
					add(func(w *world) {
						w.nodes[i].sent[j] = slices.Delete(slices.Clone(queue), k, k+1)
						w.arrive(i, j, t)
					}, "deliver %d->%d %v", i+1, j+1, t)
				}
			}
		}
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.undone {
			add(func(w *world) { w.detect(i) }, "%d detects", i+1)
		}
		if n.blocked() {
			if w.withdraws > 0 {
				add(func(w *world) { w.withdraw(i) }, "%d withdraws", i+1)
			}
			continue
		}
		for j, number := range n.pending {
			if number > 0 {
				add(func(w *world) {
					w.send(i, j, item{kind: "GRANT", number: number})
					w.settle(i, j)
				}, "%d grants %d", i+1, j+1)
			}
		}
		for set := 1; n.left > 0 && set < 1<<len(w.nodes); set++ {
			var on []dmutex.NodeID
			for j := range w.nodes {
				if set>>j&1 == 1 {
					on = append(on, id(j))
				}
			}
			if set>>i&1 == 0 && (len(on) == 1 || w.Widest != nil && len(on) <= w.Widest[i]) {
				add(func(w *world) { w.wait(i, on) }, "%d waits for %v", i+1, on)
			}
		}
	}
	return steps
}

func (w *world) wait(i int, on []dmutex.NodeID) {
	n := &w.nodes[i]
	n.left--
	n.number++
	for _, id := range on {
		n.waits[id-1] = true
		w.send(i, int(id)-1, item{kind: "REQUEST", number: n.number})
	}
	must(n.Wait(on))
	n.undone = true
	if w.AtOnce {
		w.detect(i)
	}
}

func (w *world) detect(i int) {
	w.nodes[i].undone = false
	out, err := w.nodes[i].Detect()
	w.does(i, out, err)
}

func (w *world) settle(i, j int) {
	w.nodes[i].pending[j] = 0
	if m, ok := w.nodes[i].Machine.(asker); ok {
		must(m.Settled(id(j)))
	}
}

func (w *world) withdraw(i int) {
	w.withdraws--
	n := &w.nodes[i]
	for j, in := range n.waits {
		if in {
			w.send(i, j, item{kind: "WITHDRAW", number: n.number})
		}
	}
	clear(n.waits)
	n.undone = false
	must(n.Withdraw())
}

func (w *world) arrive(i, j int, t item) {
	n := &w.nodes[j]
	switch t.kind {
	case "":
		out, err := n.Handle(t.msg)
		w.does(j, out, err)
	case "REQUEST":
		if m, ok := n.Machine.(asker); ok && n.pending[i] == 0 {
			must(m.Asked(id(i)))
		}
		n.pending[i] = t.number
	case "WITHDRAW":
		if n.pending[i] == t.number {
			w.settle(j, i)
		}
	case "GRANT":
		if t.number != n.number || !n.waits[i] {
			return // of an earlier wait
		}
		must(n.Granted(id(i)))
		n.waits[i] = false
		if w.Or {
			clear(n.waits)
		}
		n.undone = n.undone && n.blocked()
	}
}

// Tell writes a step, and which nodes declare a deadlock in it.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i := range after.nodes {
		if after.nodes[i].Deadlocked() && !w.nodes[i].Deadlocked() {
			b = fmt.Appendf(b, "    %d declares a deadlock\n", i+1)
		}
	}
	return b
}
