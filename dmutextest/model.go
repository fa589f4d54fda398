package dmutextest

import (
	"fmt"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
)

// A Config says which group [Explore] explores, and how far.
type Config struct {
	Algorithm dmutex.Algorithm
	Members   []dmutex.NodeID // see Nodes
	Holder    dmutex.NodeID   // as in dmutex.Start
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

// A model is a group of machines as a transition system. It keeps one copy of
// each state of a machine and of each message that ever occurs, and runs the
// real machine once for each input to each of its states. A state of the whole
// is then a short list of numbers:
//
//	the state of each machine
//	what each node may still do: requests | cancels<<8 | ticks<<16 | forgets<<24
//	duplicates | losses<<16 that may still happen
//	the highest fence granted, in two halves
//	the messages on their way, by channel and age, or by number if unordered
type model struct {
	group
	cfg     Config
	n       int // nodes
	locals  []local
	flights []flight
	steps   []step

	localID  map[string]uint32 // by node and text
	flightID map[string]uint32 // by text
	stepID   map[uint64]uint32 // by machine state and input

	actions []action // what possible returns
	next    []uint32 // what apply returns
	nodes   []*local // scratch
	sparse  bool     // some grant's fence was not the last one plus one
	most    int      // messages in one channel
}

// A flight is a message that may be on its way.
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
	fault  *fault
}

// An action is something that may happen next.
type action struct {
	do verb
	at int // place of the node in members, or of the message among those on their way
}

// newModel also returns the state at the beginning. If that is wrong already,
// the error is a *Violation.
func newModel(c Config) (*model, []uint32, error) {
	m := &model{
		group:    group{c.Algorithm, c.Members, c.Holder, c.Fence},
		cfg:      c,
		n:        len(c.Members),
		localID:  make(map[string]uint32),
		flightID: make(map[string]uint32),
		stepID:   make(map[uint64]uint32),
		nodes:    make([]*local, len(c.Members)),
	}
	if m.n == 0 {
		return nil, nil, fmt.Errorf("%w: Config.Members is empty", dmutex.ErrMisuse)
	}
	if min(c.Network.Duplicates, c.Network.Losses) < 0 || max(c.Network.Duplicates, c.Network.Losses) > math.MaxUint16 {
		return nil, nil, fmt.Errorf("%w: duplicates and losses are from 0 to 65535", dmutex.ErrMisuse)
	}
	s := make([]uint32, m.head())
	for i, self := range c.Members {
		machine, err := m.birth(self, 0)
		if err != nil {
			return nil, nil, err
		}
		id, f := m.local(i, machine)
		if f != nil {
			return nil, nil, m.tell(f, nil)
		}
		s[i] = id
		for shift, list := range [][]int{c.Requests, c.Cancels, c.Ticks, c.Forgets} {
			left, err := budget(list, i, m.n)
			if err != nil {
				return nil, nil, err
			}
			s[m.n+i] |= left << (8 * shift)
		}
	}
	for i, id := range s[:m.n] {
		m.nodes[i] = &m.locals[id]
	}
	if f := m.born(m.nodes); f != nil {
		return nil, nil, m.tell(f, nil)
	}
	s[2*m.n] = uint32(c.Network.Duplicates) | uint32(c.Network.Losses)<<16
	m.granted(s, c.Fence)
	return m, s, nil
}

func budget(list []int, i, n int) (uint32, error) {
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
	return uint32(k), nil
}

// head is where the messages begin in a state.
func (m *model) head() int { return 2*m.n + 3 }

func (m *model) last(s []uint32) uint64 { return uint64(s[2*m.n+1]) | uint64(s[2*m.n+2])<<32 }

func (m *model) granted(s []uint32, fence uint64) {
	s[2*m.n+1], s[2*m.n+2] = uint32(fence), uint32(fence>>32)
}

// local returns the number of a machine's state.
func (m *model) local(i int, machine dmutex.Machine) (uint32, *fault) {
	key := string(rune(i)) + text(machine)
	if id, ok := m.localID[key]; ok {
		return id, nil
	}
	l, f := m.inspect(machine, m.members[i])
	id := uint32(len(m.locals))
	m.locals = append(m.locals, l)
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
		m.flights = append(m.flights, flight{msg.Clone(), to, uint32(from*m.n + to)})
		m.flightID[key] = id
	}
	return id
}

// step returns what an input does to node i in one of its states. msg counts
// only where do is deliver.
func (m *model) step(i int, from uint32, do verb, msg uint32) *step {
	key := uint64(from)<<32 | uint64(msg)<<3 | uint64(do)
	id, ok := m.stepID[key]
	if !ok {
		id = uint32(len(m.steps))
		m.steps = append(m.steps, m.run(i, from, do, msg))
		m.stepID[key] = id
	}
	return &m.steps[id]
}

func (m *model) run(i int, from uint32, do verb, msg uint32) (s step) {
	machine := m.locals[from].machine.Clone()
	var in dmutex.Message
	if do == deliver {
		in = m.flights[msg].Clone()
	}
	var out []dmutex.Message
	var f *fault
	if do == forget {
		machine, f = m.reborn(machine, m.members[i], 1)
	} else {
		out, f = act(machine, m.members[i], do, in)
	}
	if f == nil {
		f = m.addressed(out)
	}
	if now := text(m.locals[from].machine); f == nil && now != m.locals[from].text {
		f = faultf(ErrContract, "an input to a clone of %q made it %q", m.locals[from].text, now)
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

// possible lists what may happen in a state. The list is overwritten by the
// next call.
func (m *model) possible(s []uint32) []action {
	list := m.actions[:0]
	calm := m.calm(s)
	for i := range m.n {
		l, left := &m.locals[s[i]], s[m.n+i]
		switch {
		case l.phase == dmutex.Idle && left&0xff > 0:
			list = append(list, action{request, i})
		case l.phase == dmutex.Waiting && left>>8&0xff > 0:
			list = append(list, action{cancel, i})
		case l.phase == dmutex.Held:
			list = append(list, action{release, i})
		}
		if l.stirs && (calm || left>>16&0xff > 0) {
			list = append(list, action{tick, i})
		}
		if l.forgets && left>>24 > 0 {
			list = append(list, action{forget, i})
		}
	}
	wire := s[m.head():]
	for k, msg := range wire {
		if k > 0 && m.lane(msg) == m.lane(wire[k-1]) {
			continue // it comes later, or is the same
		}
		list = append(list, action{deliver, k})
		if s[2*m.n]&0xffff > 0 {
			list = append(list, action{duplicate, k})
		}
		if s[2*m.n]>>16 > 0 {
			list = append(list, action{lose, k})
		}
	}
	m.actions = list
	return list
}

// calm reports whether something is unfinished and only time can help.
func (m *model) calm(s []uint32) bool {
	if len(s) > m.head() {
		return false
	}
	unfinished := false
	for _, id := range s[:m.n] {
		l := &m.locals[id]
		if l.phase == dmutex.Held {
			return false
		}
		unfinished = unfinished || l.phase == dmutex.Waiting || !l.clean
	}
	return unfinished
}

// apply returns the state that an action leads to. It is overwritten by the
// next call, which must not be given it.
func (m *model) apply(s []uint32, a action) ([]uint32, *fault) {
	next, f := m.leadsTo(append(m.next[:0], s...), a)
	m.next = next
	return next, f
}

func (m *model) leadsTo(s []uint32, a action) ([]uint32, *fault) {
	node := a.at
	switch a.do {
	case request:
		s[m.n+node]--
	case cancel:
		s[m.n+node] -= 1 << 8
	case tick:
		if s[m.n+node]>>16&0xff > 0 {
			s[m.n+node] -= 1 << 16
		}
	case forget:
		s[m.n+node] -= 1 << 24
	}
	if a.do.local() {
		return m.move(s, node, m.step(node, s[node], a.do, 0))
	}
	at := m.head() + a.at
	msg := s[at]
	node = m.flights[msg].to
	switch a.do {
	case duplicate:
		s[2*m.n]--
	case lose:
		s[2*m.n] -= 1 << 16
		return slices.Delete(s, at, at+1), nil
	default:
		s = slices.Delete(s, at, at+1)
	}
	return m.move(s, node, m.step(node, s[node], deliver, msg))
}

// move makes a step of node i in a state.
func (m *model) move(s []uint32, i int, t *step) ([]uint32, *fault) {
	if t.fault != nil {
		return s, t.fault
	}
	s[i] = t.to
	for j, id := range s[:m.n] {
		m.nodes[j] = &m.locals[id]
	}
	if t.enters {
		last, fence := m.last(s), m.locals[t.to].fence
		if f := enters(m.members, m.nodes, i, last); f != nil {
			return s, f
		}
		m.sparse = m.sparse || fence != last+1
		m.granted(s, fence)
	}
	if f := finds(m.members, m.nodes); f != nil {
		return s, f
	}
	for _, msg := range t.sent {
		s = m.send(s, msg)
	}
	return s, m.crowded(s, t.sent)
}

// send puts a message behind those of its lane.
func (m *model) send(s []uint32, msg uint32) []uint32 {
	s = append(s, msg)
	k, lane := len(s)-1, m.lane(msg)
	for ; k > m.head() && m.lane(s[k-1]) > lane; k-- {
		s[k] = s[k-1]
	}
	s[k] = msg
	return s
}

// crowded counts the messages in the channels to which some were added.
func (m *model) crowded(s, sent []uint32) *fault {
	for _, msg := range sent {
		n := 0
		for _, other := range s[m.head():] {
			if m.flights[other].channel == m.flights[msg].channel {
				n++
			}
		}
		m.most = max(m.most, n)
		if f := crowds(m.cfg.Network, m.flights[msg].Message, n); f != nil {
			return f
		}
	}
	return nil
}

// rests checks a state in which nothing is on its way.
func (m *model) rests(s []uint32) *fault {
	if len(s) > m.head() {
		return nil
	}
	for j, id := range s[:m.n] {
		m.nodes[j] = &m.locals[id]
	}
	return rests(m.members, m.nodes)
}

// command is an action as scripts write it.
func (m *model) command(s []uint32, a action) string {
	if a.do.local() {
		return fmt.Sprint(a.do, " ", m.members[a.at])
	}
	return fmt.Sprint(a.do, " ", m.flights[s[m.head()+a.at]].Message.String())
}
