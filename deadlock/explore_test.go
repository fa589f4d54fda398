package deadlock

import (
	"encoding"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

// A detector is a machine of either model, or a mutant of one.
type detector interface {
	Wait(on []dmutex.NodeID) error
	Granted(by dmutex.NodeID) error
	Withdraw() error
	Detect() ([]Message, error)
	Handle(Message) ([]Message, error)
	Deadlocked() bool
	encoding.TextAppender
	copy() detector
}

// An asker is a detector that is told who waits for it.
type asker interface {
	Asked(by dmutex.NodeID) error
	Settled(with dmutex.NodeID) error
}

func (m *And) copy() detector { return m.Clone() }
func (m *Or) copy() detector  { return m.Clone() }

func newAnd(self dmutex.NodeID, members []dmutex.NodeID) detector {
	m, err := NewAnd(self, members)
	if err != nil {
		panic(err)
	}
	return m
}

func newOr(self dmutex.NodeID, members []dmutex.NodeID) detector {
	m, err := NewOr(self, members)
	if err != nil {
		panic(err)
	}
	return m
}

// A trial is a small group of an application that waits, with a detector at
// each node. The explorer tries every order of everything: whom a node asks,
// when it grants, when it calls Detect (once in each wait), what arrives.
type trial struct {
	born      func(self dmutex.NodeID, members []dmutex.NodeID) detector
	or        bool
	waits     []int // how often each node may wait
	widest    []int // for how many others each at most; nil is 1
	atOnce    bool  // Detect is called together with Wait
	unordered bool  // the channels may reorder
	withdraws int   // how many waits may be withdrawn
	limit     int   // states; 0 is a million
}

// An item is a message on a channel: of the application, or of the detector.
type item struct {
	kind   string // REQUEST, GRANT, WITHDRAW, or "" for the detector's
	number int    // of the wait
	msg    Message
}

func (t item) String() string {
	if t.kind == "" {
		return t.msg.Kind.String() + fmt.Sprintf(" %d#%d", t.msg.Initiator, t.msg.Number)
	}
	return t.kind + " " + strconv.Itoa(t.number)
}

// A world is the state of a trial.
type world struct {
	*trial
	withdraws int
	left      []int    // waits
	number    []int    // of each node's last wait
	waiting   [][]bool // whom each node waits for
	undone    []bool   // Detect is still to be called
	pending   [][]int  // the number of the other's request to each node
	machines  []detector
	channels  [][]item // from*nodes + to
}

var errPhantom, errMissed = errors.New("phantom"), errors.New("missed")

func nodes(n int) (list []dmutex.NodeID) {
	for i := range n {
		list = append(list, dmutex.NodeID(i+1))
	}
	return list
}

func (t *trial) begin() *world {
	n := len(t.waits)
	w := &world{trial: t, withdraws: t.withdraws, left: t.waits, number: make([]int, n), undone: make([]bool, n), channels: make([][]item, n*n)}
	for i := range n {
		w.waiting = append(w.waiting, make([]bool, n))
		w.pending = append(w.pending, make([]int, n))
		w.machines = append(w.machines, t.born(dmutex.NodeID(i+1), nodes(n)))
	}
	return w
}

func (w *world) clone() *world {
	c := *w
	c.left, c.number, c.undone = slices.Clone(w.left), slices.Clone(w.number), slices.Clone(w.undone)
	c.channels = slices.Clone(w.channels)
	c.waiting, c.pending, c.machines = slices.Clone(w.waiting), slices.Clone(w.pending), slices.Clone(w.machines)
	for i := range c.waiting {
		c.waiting[i], c.pending[i] = slices.Clone(w.waiting[i]), slices.Clone(w.pending[i])
		c.machines[i] = w.machines[i].copy()
	}
	return &c
}

func (w *world) text(b []byte) []byte {
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
func (w *world) does(i int, out []Message, err error) {
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

// A step is something that may happen next.
type step struct {
	name string
	do   func(*world)
}

func (w *world) steps() (steps []step) {
	add := func(do func(*world), format string, args ...any) {
		steps = append(steps, step{fmt.Sprintf(format, args...), do})
	}
	n := len(w.machines)
	for c, queue := range w.channels {
		for k, t := range queue {
			if k == 0 || w.unordered && !slices.Contains(queue[:k], t) {
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
			if set>>i&1 == 0 && (len(on) == 1 || w.widest != nil && len(on) <= w.widest[i]) {
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
	if w.atOnce {
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
		if w.or {
			clear(w.waiting[j])
		}
		if !w.blocked(j) {
			w.undone[j] = false
		}
	}
}

// reach returns, from each node, the nodes that can be reached along waits of
// which no grant is on its way.
func (w *world) reach() [][]bool {
	n := len(w.machines)
	reach := make([][]bool, n)
	for i := range n {
		reach[i] = slices.Clone(w.waiting[i])
		for j := range n {
			if w.granted(j, i) {
				reach[i][j] = false
			}
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
			}
		}
	}
	return reach
}

// granted reports whether a grant of j's present wait is on its way from i.
func (w *world) granted(i, j int) bool {
	return slices.ContainsFunc(w.channels[i*len(w.machines)+j], func(t item) bool {
		return t.kind == "GRANT" && t.number == w.number[j] && w.waiting[j][i]
	})
}

// truth returns who is deadlocked.
func (w *world) truth(reach [][]bool) (deadlocked []bool) {
	n := len(w.machines)
	free := make([]bool, n) // OR: it is active, or will be
	for i := range n {
		free[i] = !w.blocked(i)
		for j := range n {
			free[i] = free[i] || w.granted(j, i)
		}
	}
	for i := range n {
		dead := reach[i][i]
		if w.or {
			dead = !free[i]
			for j := range n {
				dead = dead && !(reach[i][j] && free[j])
			}
		}
		deadlocked = append(deadlocked, dead)
	}
	return deadlocked
}

// declares checks that who declares a deadlock in a step is in one after it.
func (w *world) declares(before *world) error {
	for i, m := range w.machines {
		if m.Deadlocked() && !before.machines[i].Deadlocked() && !w.truth(w.reach())[i] {
			return fmt.Errorf("%w: %d is not deadlocked", errPhantom, i+1)
		}
	}
	return nil
}

// declared checks that, when all have called Detect and no message is on its
// way, each deadlock is declared by somebody who is in it: in the AND model on
// the same circles, in the OR model among those that can be reached.
func (w *world) declared() error {
	if slices.Contains(w.undone, true) || slices.ContainsFunc(w.channels, func(queue []item) bool { return len(queue) > 0 }) {
		return nil
	}
	reach := w.reach()
	for i, dead := range w.truth(reach) {
		found := w.machines[i].Deadlocked()
		for j, m := range w.machines {
			found = found || m.Deadlocked() && reach[i][j] && (w.or || reach[j][i])
		}
		if dead && !found {
			return fmt.Errorf("%w: the deadlock of %d", errMissed, i+1)
		}
	}
	return nil
}

// A report is what an exploration found.
type report struct{ states, deadlocks int }

var seed = maphash.MakeSeed()

// explore visits every state of a trial, shortest runs first, and returns the
// run to the first that is wrong.
func (t *trial) explore() (r report, run string, err error) {
	type visit struct{ from, step int32 }
	var (
		visits  = []visit{{-1, 0}}
		visited = map[uint64]struct{}{}
		worlds  = []*world{t.begin()}
		key     []byte
	)
	limit := t.limit
	if limit == 0 {
		limit = 1_000_000
	}
	wrong := func(err error, at int, way ...int32) (report, string, error) {
		for i := at; visits[i].from >= 0; i = int(visits[i].from) {
			way = append(way, visits[i].step)
		}
		slices.Reverse(way)
		return report{states: len(visits)}, t.replay(way) + err.Error() + "\n", err
	}
	visited[maphash.Bytes(seed, worlds[0].text(nil))] = struct{}{}
	for at := 0; at < len(worlds); at++ {
		w := worlds[at]
		worlds[at] = nil
		if slices.ContainsFunc(w.machines, detector.Deadlocked) {
			r.deadlocks++
		}
		if err := w.declared(); err != nil {
			return wrong(err, at)
		}
		for s, step := range w.steps() {
			next := w.clone()
			step.do(next)
			if err := next.declares(w); err != nil {
				return wrong(err, at, int32(s))
			}
			key = next.text(key[:0])
			hash := maphash.Bytes(seed, key)
			if _, old := visited[hash]; !old {
				visited[hash] = struct{}{}
				visits = append(visits, visit{int32(at), int32(s)})
				worlds = append(worlds, next)
			}
		}
		if r.states = len(visits); r.states > limit {
			return r, "", errors.New("more states than " + strconv.Itoa(limit))
		}
	}
	return r, "", nil
}

// replay tells a run.
func (t *trial) replay(way []int32) string {
	log := &strings.Builder{}
	w := t.begin()
	for _, s := range way {
		step := w.steps()[s]
		log.WriteString(step.name + "\n")
		was := make([]bool, len(w.machines))
		for i, m := range w.machines {
			was[i] = m.Deadlocked()
		}
		step.do(w)
		for i, m := range w.machines {
			if m.Deadlocked() && !was[i] {
				fmt.Fprintf(log, "    %d declares a deadlock\n", i+1)
			}
		}
	}
	return log.String() + "\n"
}
