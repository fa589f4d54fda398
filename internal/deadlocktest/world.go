package deadlocktest

import (
	"fmt"
	"slices"
	"strconv"

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
		return t.msg.Kind.String() + fmt.Sprintf(" %d#%d", t.msg.Initiator, t.msg.Number)
	}
	return t.kind + " " + strconv.Itoa(t.number)
}

// A world is the state of a trial.
type world struct {
	*Trial
	withdraws int
	left      []int    // waits
	number    []int    // of each node's last wait
	waiting   [][]bool // the nodes that each node waits for
	undone    []bool   // Detect is still to be called
	pending   [][]int  // the number of the other's request to each node
	machines  []Machine
	channels  [][]item // from*nodes + to
}

func (t *Trial) begin() *world {
	n := len(t.Waits)
	w := &world{Trial: t, withdraws: t.Withdraws, left: t.Waits, number: make([]int, n), undone: make([]bool, n), channels: make([][]item, n*n)}
	for i := range n {
		w.waiting = append(w.waiting, make([]bool, n))
		w.pending = append(w.pending, make([]int, n))
		m, err := t.New(dmutex.NodeID(i+1), dmutextest.Nodes(n))
		must(err)
		w.machines = append(w.machines, m)
	}
	return w
}

// Clone returns a copy.
func (w *world) Clone(*world) *world {
	c := *w
	c.left, c.number, c.undone = slices.Clone(w.left), slices.Clone(w.number), slices.Clone(w.undone)
	c.channels = slices.Clone(w.channels)
	c.waiting, c.pending, c.machines = slices.Clone(w.waiting), slices.Clone(w.pending), slices.Clone(w.machines)
	for i := range c.waiting {
		c.waiting[i], c.pending[i] = slices.Clone(w.waiting[i]), slices.Clone(w.pending[i])
		c.machines[i] = w.Copy(w.machines[i])
	}
	return &c
}

// AppendState appends the canonical state.
func (w *world) AppendState(b []byte) []byte {
	b = append(b, byte(w.withdraws))
	for i, m := range w.machines {
		b, _ = m.AppendText(b)
		b = append(b, '|', byte(w.left[i]), byte(w.number[i]))
		if w.undone[i] {
			b = append(b, 'd')
		}
		for j := range w.machines {
			b = append(b, byte(w.pending[i][j]))
		}
		b = append(b, '\n')
	}
	for c, queue := range w.channels {
		for _, t := range queue {
			b = append(b, byte(c))
			if t.kind != "" {
				b = append(b, t.kind[0], byte(t.number))
			} else {
				b = append(b, byte(t.msg.Kind), byte(t.msg.Initiator), byte(t.msg.Number))
			}
		}
	}
	return b
}

func (w *world) blocked(i int) bool { return slices.Contains(w.waiting[i], true) }

func (w *world) send(i, j int, t item) {
	c := i*len(w.machines) + j
	w.channels[c] = append(slices.Clip(w.channels[c]), t)
}

// does sends what a detector returns.
func (w *world) does(i int, out []deadlock.Message, err error) {
	must(err)
	for _, msg := range out {
		w.send(i, int(msg.To)-1, item{msg: msg})
	}
}

func must(err error) {
	if err != nil {
		panic(err)
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
	n := len(w.machines)
	for c, queue := range w.channels {
		for k, t := range queue {
			if k == 0 || w.Unordered && !slices.Contains(queue[:k], t) {
				add(func(w *world) {
					w.channels[c] = slices.Delete(slices.Clone(w.channels[c]), k, k+1)
					w.arrive(c/n, c%n, t)
				}, "deliver %d->%d %v", c/n+1, c%n+1, t)
			}
		}
	}
	for i := range n {
		if w.undone[i] {
			add(func(w *world) { w.detect(i) }, "%d detects", i+1)
		}
		if w.blocked(i) {
			if w.withdraws > 0 {
				add(func(w *world) { w.withdraw(i) }, "%d withdraws", i+1)
			}
			continue
		}
		for j := range n {
			if w.pending[i][j] > 0 {
				add(func(w *world) { w.grant(i, j) }, "%d grants %d", i+1, j+1)
			}
		}
		for set := 1; w.left[i] > 0 && set < 1<<n; set++ {
			var on []dmutex.NodeID
			for j := range n {
				if set>>j&1 == 1 {
					on = append(on, dmutex.NodeID(j+1))
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
	w.left[i]--
	w.number[i]++
	for _, node := range on {
		w.waiting[i][node-1] = true
		w.send(i, int(node)-1, item{kind: "REQUEST", number: w.number[i]})
	}
	must(w.machines[i].Wait(on))
	w.undone[i] = true
	if w.AtOnce {
		w.detect(i)
	}
}

func (w *world) detect(i int) {
	w.undone[i] = false
	out, err := w.machines[i].Detect()
	w.does(i, out, err)
}

func (w *world) grant(i, j int) {
	w.send(i, j, item{kind: "GRANT", number: w.pending[i][j]})
	w.settle(i, j)
}

func (w *world) settle(i, j int) {
	w.pending[i][j] = 0
	if m, ok := w.machines[i].(asker); ok {
		must(m.Settled(dmutex.NodeID(j + 1)))
	}
}

func (w *world) withdraw(i int) {
	w.withdraws--
	for j, in := range w.waiting[i] {
		if in {
			w.send(i, j, item{kind: "WITHDRAW", number: w.number[i]})
		}
	}
	clear(w.waiting[i])
	w.undone[i] = false
	must(w.machines[i].Withdraw())
}

func (w *world) arrive(i, j int, t item) {
	m, from := w.machines[j], dmutex.NodeID(i+1)
	switch t.kind {
	case "":
		out, err := m.Handle(t.msg)
		w.does(j, out, err)
	case "REQUEST":
		if m, ok := m.(asker); ok && w.pending[j][i] == 0 {
			must(m.Asked(from))
		}
		w.pending[j][i] = t.number
	case "WITHDRAW":
		if w.pending[j][i] == t.number {
			w.settle(j, i)
		}
	case "GRANT":
		if t.number != w.number[j] || !w.waiting[j][i] {
			return // of an earlier wait
		}
		must(m.Granted(from))
		w.waiting[j][i] = false
		if w.Or {
			clear(w.waiting[j])
		}
		if !w.blocked(j) {
			w.undone[j] = false
		}
	}
}
