package byhand

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/trace"
)

// A world is a group at one moment of a run.
type world struct {
	run    *Run
	nodes  []node
	wire   []flight // in flight, oldest first
	blocks []string // of the script: a comment, and the commands of a step
	lost   int
	twice  int // messages that were delivered and stayed

	now    int64
	acted  []dmutex.NodeID // nodes with a local input since time last passed
	sent   map[[2]dmutex.NodeID]uint64
	traces []*trace.Trace // nil if nobody draws them
}

type node struct {
	id      dmutex.NodeID
	machine dmutex.Machine
	crashed bool
}

// A flight is a message in flight.
type flight = trace.Message

func newWorld(r *Run) (*world, error) {
	if len(r.group.start.Members) == 0 {
		return nil, errGroup
	}
	w := &world{run: r, sent: make(map[[2]dmutex.NodeID]uint64)}
	members := slices.Sorted(slices.Values(r.group.start.Members))
	for i, id := range r.group.start.Members {
		s := r.group.start
		s.Self, s.Clock = id, r.group.clocks[i]
		m, err := r.Algorithm.New(s)
		if err != nil {
			return nil, err
		}
		w.nodes = append(w.nodes, node{id: id, machine: m})
		w.traces = append(w.traces, &trace.Trace{Name: id.String(), Header: trace.Header{Self: id, Members: members}})
		w.born(i, s)
	}
	return w, nil
}

// clone returns a copy in which nobody draws.
func (w *world) clone() *world {
	c := &world{run: w.run, nodes: slices.Clone(w.nodes), wire: slices.Clone(w.wire)}
	for i := range c.nodes {
		c.nodes[i].machine = c.nodes[i].machine.Clone()
	}
	return c
}

func (w *world) place(id uint64) int {
	return slices.IndexFunc(w.nodes, func(n node) bool { return n.id == dmutex.NodeID(id) })
}

// named returns the step that a command of a script names. If it is about all messages, that is the next one,
// and none if no message is left.
func (w *world) named(name, rest string, all bool) (step, error) {
	known := slices.ContainsFunc(verbs, func(v verb) bool { return v.do == name })
	switch s := (step{do: name}); {
	case !known:
		return s, errors.New("there is no such command")
	case all:
		if k := slices.IndexFunc(w.wire, func(f flight) bool { return true }); k < 0 {
			return step{}, nil
		}
		return s, nil
	case s.local():
		id, err := number(rest)
		s.at = id
		return s, err
	default:
		k := slices.IndexFunc(w.wire, func(f flight) bool { return f.String() == rest })
		if k < 0 {
			k = slices.IndexFunc(w.wire, func(f flight) bool { return strings.HasPrefix(f.String(), rest+" ") })
		}
		if k < 0 {
			return s, errors.New("no such message is in flight")
		}
		s.at = uint64(k)
		return s, nil
	}
}

// do takes a step. A step that cannot be taken is refused; what a machine refuses is part of the script. After an
// error the world is of no use.
func (w *world) do(s step) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("the machine panics: %v. The command check says at which line", reason)
		}
	}()
	if s.local() {
		return w.local(s)
	}
	if s.at >= uint64(len(w.wire)) {
		return errors.New("no such message is in flight")
	}
	k := int(s.at)
	f := w.wire[k]
	if !w.next(k) {
		return errors.New("the network is fifo, and an older message is in flight there")
	}
	w.tell(s.note, "%s %v", s.do, f)
	if s.do != duplicate {
		w.wire = slices.Delete(w.wire, k, k+1)
	}
	switch s.do {
	case lose:
		w.lose(f)
		return nil
	case duplicate:
		w.twice++
	}
	i := w.place(uint64(f.To))
	w.pass(w.nodes[i].id, false)
	out, err := w.nodes[i].machine.Handle(f.Clone())
	w.did(i, trace.Event{What: trace.Handle, In: f}, out, err)
	return nil
}

// local takes a step of a node.
func (w *world) local(s step) error {
	i := w.place(s.at)
	if i < 0 {
		return fmt.Errorf("there is no node %d", s.at)
	}
	n := &w.nodes[i]
	if n.crashed {
		return fmt.Errorf("node %d has crashed", s.at)
	}
	var out []dmutex.Message
	var err error
	switch s.do {
	case crash:
		n.crashed = true
		w.tell(s.note, "# crash %d", s.at)
		w.pass(n.id, true)
		w.event(i, trace.Event{What: trace.Down, Err: "crash"})
		w.drop()
		return nil
	case "request":
		out, err = n.machine.Request()
	case "share":
		sharer, ok := n.machine.(dmutex.Sharer)
		if !ok {
			return errors.New("this machine does not share")
		}
		out, err = sharer.Share()
	case "cancel":
		out, err = n.machine.Cancel()
	case "release":
		out, err = n.machine.Release()
	case "tick":
		ticker, ok := n.machine.(dmutex.Ticker)
		if !ok {
			return errors.New("this machine has no Tick")
		}
		out, err = ticker.Tick()
	case "forget":
		return w.forget(s, i)
	}
	w.tell(s.note, "%s %d", s.do, s.at)
	w.pass(n.id, true)
	w.did(i, trace.Event{What: trace.What(s.do)}, out, err)
	return nil
}

// forget lets a node forget its machine, and makes the next one as dmutextest does.
func (w *world) forget(s step, i int) error {
	clock, known, ok := w.nodes[i].machine.Forget()
	if !ok {
		return errors.New("this machine does not let itself be forgotten")
	}
	start := w.run.group.start
	start = dmutex.Start{Self: w.nodes[i].id, Members: start.Members, Home: start.Home, Fence: start.Fence, Clock: clock + 1, Known: known + 1}
	m, err := w.run.Algorithm.New(start)
	if err != nil {
		return err
	}
	w.tell(s.note, "%s %d", s.do, s.at)
	w.pass(w.nodes[i].id, true)
	w.event(i, trace.Event{What: trace.Forget, Lock: "x"})
	w.nodes[i].machine = m
	w.born(i, start)
	return nil
}

// tell begins a block of the script.
func (w *world) tell(note, format string, args ...any) {
	if w.traces == nil {
		return
	}
	block := fmt.Sprintf(format, args...) + "\n"
	if note != "" {
		block = "# " + note + "\n" + block
	}
	w.blocks = append(w.blocks, block)
}

// drop loses what is in flight to nodes that have crashed.
func (w *world) drop() {
	w.wire = slices.DeleteFunc(w.wire, func(f flight) bool {
		gone := w.nodes[w.place(uint64(f.To))].crashed
		if gone && w.traces != nil {
			w.blocks[len(w.blocks)-1] += fmt.Sprintf("lose %v\n", f)
			w.lose(f)
		}
		return gone
	})
}

// lose notes that a message was lost.
func (w *world) lose(f flight) {
	w.lost++
	w.event(w.place(uint64(f.To)), trace.Event{What: trace.Lose, Lock: "x", In: f})
}

// did takes the result of an input.
func (w *world) did(i int, e trace.Event, out []dmutex.Message, err error) {
	for _, m := range out {
		f := flight{Message: m.Clone()}
		if w.traces != nil {
			way := [2]dmutex.NodeID{m.From, m.To}
			w.sent[way]++
			f.Seq = w.sent[way]
		}
		e.Out, w.wire = append(e.Out, f), append(w.wire, f)
	}
	m := w.nodes[i].machine
	e.Lock, e.Phase, e.Fence, e.Shared = "x", m.Phase(), m.Fence(), sharing(m)
	if err != nil {
		e.Err = err.Error()
	}
	w.event(i, e)
	w.drop()
}

func sharing(m dmutex.Machine) bool {
	s, ok := m.(dmutex.Sharer)
	return ok && m.Phase() == dmutex.Held && s.Shared()
}

// A trace has the time of a script: a delivery takes a second, and local inputs of different nodes in a row happen
// at the same time.
const second = 1_000_000_000

func (w *world) pass(self dmutex.NodeID, local bool) {
	if !local || len(w.acted) == 0 || slices.Contains(w.acted, self) {
		w.now += second
		w.acted = w.acted[:0]
	}
	if local {
		w.acted = append(w.acted, self)
	}
}

func (w *world) event(i int, e trace.Event) {
	if w.traces != nil {
		e.Time = w.now
		w.traces[i].Events = append(w.traces[i].Events, e)
	}
}

func (w *world) born(i int, s dmutex.Start) {
	m := w.nodes[i].machine
	w.event(i, trace.Event{
		What: trace.Born, Lock: "x", Clock: s.Clock, Known: s.Known, Holder: s.Holder, Sharers: s.Sharers, Home: s.Home, Fence: s.Fence,
		Phase: m.Phase(), Shared: sharing(m),
	})
}

// next reports whether message k may arrive or be lost: the network keeps the order of messages from one node to another.
func (w *world) next(k int) bool {
	f := w.wire[k]
	return w.run.group.unordered || !slices.ContainsFunc(w.wire[:k], func(o flight) bool { return o.From == f.From && o.To == f.To })
}

// clash returns the nodes that hold the lock together and do not all share it.
func (w *world) clash() (clashing []dmutex.NodeID) {
	for _, n := range w.nodes {
		for _, o := range w.nodes {
			held := n.machine.Phase() == dmutex.Held && o.machine.Phase() == dmutex.Held
			if held && n.id != o.id && !(sharing(n.machine) && sharing(o.machine)) && !slices.Contains(clashing, n.id) {
				clashing = append(clashing, n.id)
			}
		}
	}
	return clashing
}

// vain returns a node that waits in vain: no message is in flight, and no node that lives is in the critical section.
func (w *world) vain() (waits dmutex.NodeID, why string) {
	why = "no message is in flight, and no node is in the critical section"
	for _, n := range w.nodes {
		switch {
		case n.machine.Phase() == dmutex.Held && n.crashed:
			why = fmt.Sprintf("no message is in flight, and node %d has crashed in the critical section", n.id)
		case n.machine.Phase() == dmutex.Held, len(w.wire) > 0:
			return dmutex.None, ""
		case n.machine.Phase() == dmutex.Waiting && !n.crashed && waits == dmutex.None:
			waits = n.id
		}
	}
	return waits, why
}

// options returns what may happen when nothing fails and nobody gives up.
func (w *world) options() (all []step) {
	for _, n := range w.nodes {
		switch {
		case n.crashed:
		case n.machine.Phase() == dmutex.Idle && !n.machine.Pending():
			all = append(all, step{do: "request", at: uint64(n.id)})
		case n.machine.Phase() == dmutex.Held:
			all = append(all, step{do: "release", at: uint64(n.id)})
		}
	}
	for k := range w.wire {
		if w.next(k) {
			all = append(all, step{do: deliver, at: uint64(k)})
		}
	}
	return all
}

// random returns a step by chance, and reports whether there is one.
func (w *world) random(chance *rand.Rand) (s step, ok bool) {
	all := w.options()
	if len(all) == 0 {
		return s, false
	}
	return all[chance.IntN(len(all))], true
}

const (
	walks = 200 // random runs that trouble tries
	walk  = 60  // steps of each
)

// trouble returns the shortest of some random runs from here that ends with a node that waits in vain, or with two
// in the critical section, and nil if it finds none.
func (w *world) trouble(chance *rand.Rand) (found []step) {
	most := walk
	for range walks {
		c := w.clone()
		var steps []step
		for len(steps) < most {
			s, ok := c.random(chance)
			if !ok || c.do(s) != nil {
				break
			}
			steps = append(steps, s)
			if waits, _ := c.vain(); waits != dmutex.None || len(c.clash()) > 0 {
				found, most = steps, len(steps)-1
				break
			}
		}
	}
	return found
}

// golden returns the script of what was done, with its output.
func (w *world) golden() string {
	g := w.run.group
	network := dmutextest.Network{Unordered: g.unordered, Duplicates: w.twice, Losses: w.lost}
	var b strings.Builder
	for _, line := range append(g.lines(), "network "+network.String()) {
		b.WriteString(line + "\n")
	}
	for _, block := range w.blocks {
		b.WriteString("\n" + block)
	}
	script, err := dmutextest.RunScript(w.run.Algorithm.New, b.String())
	if err != nil {
		return b.String() + "\n# it does not run again: " + err.Error() + "\n"
	}
	return script
}

// broken returns what a golden script says of the first rule that was broken, or "".
func broken(script string) string {
	for line := range strings.Lines(script) {
		if rule, ok := strings.CutPrefix(line, "violation: "); ok {
			return strings.TrimSpace(rule)
		}
	}
	return ""
}

// happened returns the output of the last step.
func happened(script string) string {
	last := script[strings.LastIndex(script, "\n\n")+1:]
	_, output, _ := strings.Cut(last, "----\n")
	return strings.TrimSpace(output)
}
