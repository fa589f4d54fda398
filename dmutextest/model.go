package dmutextest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// A Config says which group [Explore] explores, and how far.
type Config struct {
	Algorithm dmutex.Algorithm
	Members   []dmutex.NodeID // see Nodes
	Holder    dmutex.NodeID   // as in dmutex.Start
	Home      dmutex.NodeID   // as in dmutex.Start
	Fence     uint64          // as in dmutex.Start
	Network   Network

	// Requests, Cancels and Ticks are how often in a run a node may do each, at
	// most 255 times: one number for all nodes, or one for each in the order of
	// Members. A holder always releases, after any time. Only machines of type
	// [dmutex.Ticker] tick. When a node waits, or something is left over, and no
	// message is in flight, time passes and they tick without limit.
	Requests, Cancels, Ticks []int

	// Forgets is how often, in the same form, a node may forget its machine when
	// the machine allows it (see dmutex.Machine.Forget). The next one is born with
	// a clock and a fence that are one higher than necessary.
	Forgets []int

	// MaxStates ends an exploration early; 0 means no limit.
	MaxStates int

	// Progress, if not nil, is called from time to time with the progress of
	// Explore, which stops if it returns false.
	Progress func(Report) bool
}

// A model is what the states of a group share. It keeps one copy of each state of a
// machine and of each message that ever occurs, and runs the real machine once for each
// input to each of its states.
type model struct {
	group
	cfg     Config
	locals  []local
	flights []flight
	steps   []step

	localID  map[string]uint32 // by node and text
	flightID map[string]uint32 // by text
	taken    [][]taken         // by machine state: the steps that are known from there

	nodes  []*local // scratch
	sparse bool     // some grant's fence was not the last one plus one
	most   int      // messages in one channel
}

// A world is a state of a group.
type world struct {
	*model
	places             []place  // by place in members
	wire               []uint32 // messages in flight, by channel and age, or by number if unordered
	duplicates, losses uint16   // that may still happen
	last               uint64   // the highest fence granted
}

// A place is the state of a node.
type place struct {
	local                             uint32 // the state of its machine
	requests, cancels, ticks, forgets uint8  // that it may still do
}

// A flight is a message that may be in flight.
type flight struct {
	dmutex.Message
	to      int    // place in members
	channel uint32 // names sender and receiver
}

// A step is what one input does to one machine.
type step struct {
	to     uint32
	sent   []uint32
	enters bool
	fault  error
}

// An action is something that may happen next.
type action struct {
	do verb
	at int // place of the node in members, or of the message among those in flight
}

// consumes reports whether a message is received or lost.
func (a action) consumes() bool { return a.do == deliver || a.do == lose }

// newWorld returns the state at the beginning. If that is wrong already, the error is
// a *Violation.
func newWorld(c Config) (*world, error) {
	m := &model{
		group:    group{algorithm: c.Algorithm, members: c.Members, holder: c.Holder, home: c.Home, fence: c.Fence},
		cfg:      c,
		localID:  make(map[string]uint32),
		flightID: make(map[string]uint32),
		nodes:    make([]*local, len(c.Members)),
	}
	if len(c.Members) == 0 {
		return nil, fmt.Errorf("%w: Config.Members is empty", dmutex.ErrMisuse)
	}
	if min(c.Network.Duplicates, c.Network.Losses) < 0 || max(c.Network.Duplicates, c.Network.Losses) > math.MaxUint16 {
		return nil, fmt.Errorf("%w: duplicates and losses are from 0 to 65535", dmutex.ErrMisuse)
	}
	w := &world{
		model: m, places: make([]place, len(c.Members)), last: c.Fence,
		duplicates: uint16(c.Network.Duplicates), losses: uint16(c.Network.Losses),
	}
	wrong := func(err error) error {
		v, _ := errors.AsType[*Violation](err)
		return &Violation{Kind: v.Kind, Why: v.Why, Script: m.script("", v)}
	}
	for i, self := range c.Members {
		machine, err := m.birth(self, 0)
		if err != nil {
			return nil, err
		}
		p := &w.places[i]
		if p.local, err = m.local(i, machine); err != nil {
			return nil, wrong(err)
		}
		for _, b := range []struct {
			list []int
			left *uint8
		}{{c.Requests, &p.requests}, {c.Cancels, &p.cancels}, {c.Ticks, &p.ticks}, {c.Forgets, &p.forgets}} {
			if *b.left, err = budget(b.list, i, len(c.Members)); err != nil {
				return nil, err
			}
		}
	}
	if err := m.born(w.look()); err != nil {
		return nil, wrong(err)
	}
	return w, nil
}

func budget(list []int, i, n int) (uint8, error) {
	k := 0
	switch len(list) {
	case 0:
	case 1:
		k = list[0]
	case n:
		k = list[i]
	default:
		return 0, fmt.Errorf("%w: %d numbers for %d members: give one for all, or one each", dmutex.ErrMisuse, len(list), n)
	}
	if k < 0 || k > 255 {
		return 0, fmt.Errorf("%w: %d times: a node may do each thing 0 to 255 times", dmutex.ErrMisuse, k)
	}
	return uint8(k), nil
}

// at returns the machine of node i.
func (w *world) at(i int) *local { return &w.locals[w.places[i].local] }

// look returns all machines. The list is overwritten by the next call.
func (w *world) look() []*local {
	for i := range w.places {
		w.nodes[i] = w.at(i)
	}
	return w.nodes
}

// Clone returns a copy, in the memory of spare if it is not nil.
func (w *world) Clone(spare *world) *world {
	if spare == nil {
		spare = &world{model: w.model}
	}
	spare.places = append(spare.places[:0], w.places...)
	spare.wire = append(spare.wire[:0], w.wire...)
	spare.duplicates, spare.losses, spare.last = w.duplicates, w.losses, w.last
	return spare
}

// AppendState appends the state.
func (w *world) AppendState(b []byte) []byte {
	little := binary.LittleEndian
	for _, p := range w.places {
		left := uint32(p.requests) | uint32(p.cancels)<<8 | uint32(p.ticks)<<16 | uint32(p.forgets)<<24
		b = little.AppendUint64(b, uint64(p.local)|uint64(left)<<32)
	}
	b = little.AppendUint64(b, w.last)
	b = little.AppendUint32(b, uint32(w.duplicates)|uint32(w.losses)<<16)
	for _, msg := range w.wire {
		b = little.AppendUint32(b, msg)
	}
	return b
}

// local returns the number of a machine's state.
func (m *model) local(i int, machine dmutex.Machine) (uint32, error) {
	key := string(rune(i)) + text(machine)
	if id, ok := m.localID[key]; ok {
		return id, nil
	}
	l, f := m.inspect(machine, m.members[i])
	id := uint32(len(m.locals))
	m.locals, m.taken = append(m.locals, l), append(m.taken, nil)
	m.localID[key] = id
	return id, f
}

// flight returns the number of a message.
func (m *model) flight(from int, msg dmutex.Message) uint32 {
	key := msg.String()
	id, ok := m.flightID[key]
	if !ok {
		id = uint32(len(m.flights))
		to := slices.Index(m.members, msg.To)
		m.flights = append(m.flights, flight{msg.Clone(), to, uint32(from*len(m.members) + to)})
		m.flightID[key] = id
	}
	return id
}

// A taken is an input and the number of its step. Few differ at a state of a machine.
type taken struct{ input, step uint32 }

// step returns what an input does to node i in one of its states. msg counts
// only where do is deliver.
func (m *model) step(i int, from uint32, do verb, msg uint32) *step {
	input := msg<<3 | uint32(do)
	for _, t := range m.taken[from] {
		if t.input == input {
			return &m.steps[t.step]
		}
	}
	m.steps = append(m.steps, m.run(i, from, do, msg))
	m.taken[from] = append(m.taken[from], taken{input, uint32(len(m.steps) - 1)})
	return &m.steps[len(m.steps)-1]
}

func (m *model) run(i int, from uint32, do verb, msg uint32) (s step) {
	machine := m.locals[from].machine.Clone()
	var in dmutex.Message
	if do == deliver {
		in = m.flights[msg].Clone()
	}
	var out []dmutex.Message
	var f error
	if do == forget {
		machine, f = m.reborn(machine, m.members[i], 1)
	} else {
		out, f = m.act(machine, m.members[i], do, in)
	}
	if now := text(m.locals[from].machine); f == nil && now != m.locals[from].text {
		f = search.Wrong(ErrContract, "an input to a clone of %q made it %q", m.locals[from].text, now)
	}
	if f != nil {
		return step{fault: f}
	}
	for _, o := range out {
		s.sent = append(s.sent, m.flight(i, o))
	}
	s.to, s.fault = m.local(i, machine)
	s.enters = m.locals[from].phase != dmutex.Held && m.locals[s.to].phase == dmutex.Held
	return s
}

// lane is what keeps two messages in order: their channel, or nothing.
func (m *model) lane(msg uint32) uint32 {
	if m.cfg.Network.Unordered {
		return msg
	}
	return m.flights[msg].channel
}

// Steps appends what may happen.
func (w *world) Steps(list []action) []action {
	calm := w.calm()
	for i := range w.places {
		l, p := w.at(i), &w.places[i]
		switch {
		case l.phase == dmutex.Idle && p.requests > 0:
			list = append(list, action{request, i})
		case l.phase == dmutex.Waiting && p.cancels > 0:
			list = append(list, action{cancel, i})
		case l.phase == dmutex.Held:
			list = append(list, action{release, i})
		}
		if l.stirs && (calm || p.ticks > 0) {
			list = append(list, action{tick, i})
		}
		if l.forgets && p.forgets > 0 {
			list = append(list, action{forget, i})
		}
	}
	for k, msg := range w.wire {
		if k > 0 && w.lane(msg) == w.lane(w.wire[k-1]) {
			continue // it comes later, or is the same
		}
		list = append(list, action{deliver, k})
		if w.duplicates > 0 {
			list = append(list, action{duplicate, k})
		}
		if w.losses > 0 {
			list = append(list, action{lose, k})
		}
	}
	return list
}

// calm reports whether something is unfinished and only time can help.
func (w *world) calm() bool {
	if len(w.wire) > 0 {
		return false
	}
	unfinished := false
	for i := range w.places {
		l := w.at(i)
		if l.phase == dmutex.Held {
			return false
		}
		unfinished = unfinished || l.phase == dmutex.Waiting || !l.clean
	}
	return unfinished
}

// Do takes a step. If something is wrong then, its error is a *Violation.
func (w *world) Do(a action) error {
	if a.do.local() {
		p := &w.places[a.at]
		switch a.do {
		case request:
			p.requests--
		case cancel:
			p.cancels--
		case tick:
			p.ticks -= min(p.ticks, 1)
		case forget:
			p.forgets--
		}
		return w.move(a.at, a.do, 0)
	}
	msg := w.wire[a.at]
	switch a.do {
	case duplicate:
		w.duplicates--
	case lose:
		w.losses--
		w.wire = slices.Delete(w.wire, a.at, a.at+1)
		return nil
	default:
		w.wire = slices.Delete(w.wire, a.at, a.at+1)
	}
	return w.move(w.flights[msg].to, deliver, msg)
}

// move gives node i an input.
func (w *world) move(i int, do verb, msg uint32) error {
	t := w.step(i, w.places[i].local, do, msg)
	if t.fault != nil {
		return t.fault
	}
	w.places[i].local = t.to
	if t.enters {
		if f := enters(w.look(), i, w.last); f != nil {
			return f
		}
		fence := w.at(i).fence
		w.sparse = w.sparse || fence != w.last+1
		w.last = fence
	}
	if f := knows(w.look()); f != nil {
		return f
	}
	for _, msg := range t.sent {
		w.send(msg)
	}
	return w.crowded(t.sent)
}

// send puts a message behind those of its lane.
func (w *world) send(msg uint32) {
	k, lane := len(w.wire), w.lane(msg)
	for w.wire = append(w.wire, msg); k > 0 && w.lane(w.wire[k-1]) > lane; k-- {
		w.wire[k] = w.wire[k-1]
	}
	w.wire[k] = msg
}

// crowded counts the messages in the channels to which some were added.
func (w *world) crowded(sent []uint32) error {
	for _, msg := range sent {
		n := 0
		for _, other := range w.wire {
			if w.flights[other].channel == w.flights[msg].channel {
				n++
			}
		}
		w.most = max(w.most, n)
		if f := crowds(w.cfg.Network, w.flights[msg].Message, n); f != nil {
			return f
		}
	}
	return nil
}

// rests checks a state in which nothing is in flight.
func (w *world) rests() error {
	if len(w.wire) > 0 {
		return nil
	}
	return rests(w.look())
}

// command is an action as scripts write it.
func (w *world) command(a action) string {
	if a.do.local() {
		return fmt.Sprint(a.do, " ", w.members[a.at])
	}
	return fmt.Sprint(a.do, " ", w.flights[w.wire[a.at]].Message.String())
}

// Tell appends a block of a script.
func (w *world) Tell(b []byte, a action, _ *world) []byte {
	return fmt.Appendf(b, "\n%s\n", w.command(a))
}
