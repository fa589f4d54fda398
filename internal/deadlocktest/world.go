package deadlocktest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/search"
)

// The application's messages. Their Number is that of the wait.
const (
	request = deadlock.Reply + 1 + iota
	grant
	withdraw
)

// An item is a message of the application or of a machine, as Tell writes it.
type item deadlock.Message

func (t item) String() string {
	if t.Kind < request {
		return deadlock.Message(t).String()
	}
	return fmt.Sprintf("%d->%d %s %d", t.From, t.To, [...]string{"REQUEST", "GRANT", "WITHDRAW"}[t.Kind-request], t.Number)
}

// A world is the state of a trial.
type world struct {
	*Trial
	withdraws int // left
	nodes     []node
	wire      []deadlock.Message // in flight, channel by channel
}

type node struct {
	Machine
	left    int      // waits
	number  uint64   // of its last wait
	undone  bool     // Detect is still to be called
	waits   []bool   // for which nodes
	pending []uint64 // the number of each node's request to it, 0 for none
}

func (n *node) blocked() bool { return slices.Contains(n.waits, true) }

func (t *Trial) begin() *world {
	w := &world{Trial: t, withdraws: t.Withdraws}
	for i, left := range t.Waits {
		n := len(t.Waits)
		m, err := t.New(id(i), dmutextest.Nodes(n))
		must(err)
		w.nodes = append(w.nodes, node{Machine: m, left: left, waits: make([]bool, n), pending: make([]uint64, n)})
	}
	return w
}

func id(i int) dmutex.NodeID { return dmutex.NodeID(i + 1) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func (w *world) Clone(*world) *world {
	c := *w
	c.nodes, c.wire = slices.Clone(w.nodes), slices.Clone(w.wire)
	for i := range c.nodes {
		n := &c.nodes[i]
		n.Machine, n.waits, n.pending = w.Copy(n.Machine), slices.Clone(n.waits), slices.Clone(n.pending)
	}
	return &c
}

func (w *world) AppendState(b []byte) []byte {
	b = append(b, byte(w.withdraws))
	for _, n := range w.nodes {
		b, _ = n.AppendText(b)
		b = append(b, '|', byte(n.left), byte(n.number))
		if n.undone {
			b = append(b, 'd')
		}
		for _, number := range n.pending {
			b = append(b, byte(number))
		}
	}
	for _, t := range w.wire {
		b = append(b, byte(t.From), byte(t.To), byte(t.Kind), byte(t.Initiator), byte(t.Number))
	}
	return b
}

func (w *world) send(out ...deadlock.Message) {
	w.wire = append(w.wire, out...)
	slices.SortStableFunc(w.wire, func(a, b deadlock.Message) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
}

// does sends what a detector returns.
func (w *world) does(out []deadlock.Message, err error) {
	must(err)
	w.send(out...)
}

type event = search.Event[*world]

func (w *world) Do(step event) error { return step.Do(w) }

func (w *world) Steps(steps []event) []event {
	add := func(do func(*world), format string, args ...any) {
		steps = append(steps, search.NewEvent(func(w *world) error { do(w); return nil }, format, args...))
	}
	for k, t := range w.wire {
		if !slices.ContainsFunc(w.wire[:k], func(u deadlock.Message) bool { return u.From == t.From && u.To == t.To && (!w.Unordered || u == t) }) {
			add(func(w *world) { w.arrive(k) }, "deliver %v", item(t))
		}
	}
	for i, n := range w.nodes {
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
					w.send(deadlock.Message{Kind: grant, From: id(i), To: id(j), Number: number})
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
	for _, node := range on {
		n.waits[node-1] = true
		w.send(deadlock.Message{Kind: request, From: id(i), To: node, Number: n.number})
	}
	must(n.Wait(on))
	n.undone = true
	if w.AtOnce {
		w.detect(i)
	}
}

func (w *world) detect(i int) {
	w.nodes[i].undone = false
	w.does(w.nodes[i].Detect())
}

func (w *world) settle(i, j int) {
	w.nodes[i].pending[j] = 0
	if !w.Or {
		must(w.nodes[i].Settled(id(j)))
	}
}

func (w *world) withdraw(i int) {
	w.withdraws--
	n := &w.nodes[i]
	for j, in := range n.waits {
		if in {
			w.send(deadlock.Message{Kind: withdraw, From: id(i), To: id(j), Number: n.number})
		}
	}
	clear(n.waits)
	n.undone = false
	must(n.Withdraw())
}

func (w *world) arrive(k int) {
	t := w.wire[k]
	w.wire = slices.Delete(w.wire, k, k+1)
	i, j := int(t.From)-1, int(t.To)-1
	n := &w.nodes[j]
	switch t.Kind {
	case request:
		if !w.Or && n.pending[i] == 0 {
			must(n.Asked(t.From))
		}
		n.pending[i] = t.Number
	case withdraw:
		if n.pending[i] == t.Number {
			w.settle(j, i)
		}
	case grant:
		if t.Number != n.number || !n.waits[i] {
			return // of an earlier wait
		}
		must(n.Granted(t.From))
		n.waits[i] = false
		if w.Or {
			clear(n.waits)
		}
		n.undone = n.undone && n.blocked()
	default:
		w.does(n.Handle(t))
	}
}

// Tell writes a step, and which nodes declare a deadlock in it.
func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendln(b, step)
	for i, n := range after.nodes {
		if n.Deadlocked() && !w.nodes[i].Deadlocked() {
			b = fmt.Appendf(b, "    %d declares a deadlock\n", i+1)
		}
	}
	return b
}
