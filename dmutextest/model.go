package dmutextest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// A model is what the states of a group share. It keeps one copy of each state of a
// machine and of each message that ever occurs, and runs the real machine once for each
// input to each of its states.
type model struct {
	Config
	locals   []*local
	flights  []flight
	localID  map[string]int    // by node and text
	flightID map[string]uint32 // by text

	apart  bool // states of equal text stay apart, as scripts need
	pairs  bool // see repeats
	sparse bool // some grant's fence was not the last one plus one
	most   int  // messages in one channel
	inside int  // the most nodes that held the lock at one time
}

// A world is a state of a group.
type world struct {
	*model
	places             []place  // by place in Members
	wire               []uint32 // messages in flight, by channel and age, or by number if unordered
	duplicates, losses uint16   // that may still happen
	last               uint64   // the highest fence granted
	lastAlone          uint64   // the highest granted to hold the lock alone

	lived []lived // by place: machines to compare with; nil if none are. Clone leaves them out
}

// A place is the state of a node.
type place struct {
	*local                  // its machine
	left   [share + 1]uint8 // how often it may still do each thing
}

// A flight is a message that may be in flight.
type flight struct {
	dmutex.Message
	to      int    // place in Members
	channel uint32 // names sender and receiver
}

// A step is what one input does to one machine. If that is wrong, nothing is sent.
type step struct {
	to     *local
	sent   []uint32
	enters bool
	fault  error // of the step itself; then the run cannot go on
	flaw   error // of the state after it
}

// A taken is an input and its step. A state of a machine has few of them.
type taken struct {
	input uint32
	*step
}

// An action is something that may happen next.
type action struct {
	do verb
	at int // place of the node in Members, or of the message among those in flight
}

// newWorld returns the state at the beginning. If that is wrong already, it returns a
// *Violation too.
func newWorld(c Config) (*world, error) {
	n, network := len(c.Members), c.Network
	if n == 0 {
		return nil, fmt.Errorf("%w: Config.Members is empty", dmutex.ErrMisuse)
	}
	if min(network.Duplicates, network.Losses) < 0 || max(network.Duplicates, network.Losses) > math.MaxUint16 {
		return nil, fmt.Errorf("%w: duplicates and losses are from 0 to 65535", dmutex.ErrMisuse)
	}
	w := &world{
		model:  &model{Config: c, localID: make(map[string]int), flightID: make(map[string]uint32)},
		places: make([]place, n), last: c.Fence, lastAlone: c.Fence, duplicates: uint16(network.Duplicates), losses: uint16(network.Losses),
	}
	machines, err := c.births()
	if err != nil {
		return nil, err
	}
	var wrong error
	for i, p := range w.places {
		var fault error
		p.local, fault = w.local(i, machines[i])
		wrong = cmp.Or(wrong, fault)
		for do, times := range [...][]int{request: c.Requests, cancel: c.Cancels, tick: c.Ticks, forget: c.Forgets, share: c.Shares} {
			if p.left[do], err = budget(times, i, n); err != nil {
				return nil, err
			}
		}
		w.places[i] = p
	}
	return w, w.judged(worst(wrong, w.born()))
}

// judged returns what is wrong, if it is judged.
func (m *model) judged(wrong error) error {
	if m.graves && !isGrave(wrong) {
		return nil
	}
	return wrong
}

// budget returns the number for the i-th of n members. A single number stands for all of them.
func budget(times []int, i, n int) (uint8, error) {
	if len(times) == 0 {
		return 0, nil
	}
	if len(times) != 1 && len(times) != n {
		return 0, fmt.Errorf("%w: %d numbers for %d members: give one for all, or one each", dmutex.ErrMisuse, len(times), n)
	}
	k := times[i%len(times)]
	if k < 0 || k > math.MaxUint8 {
		return 0, fmt.Errorf("%w: %d times: a node may do each thing 0 to 255 times", dmutex.ErrMisuse, k)
	}
	return uint8(k), nil
}

// Clone returns a copy, in the memory of spare if it is not nil.
func (w *world) Clone(spare *world) *world {
	if spare == nil {
		spare = &world{model: w.model}
	}
	spare.places, spare.wire = append(spare.places[:0], w.places...), append(spare.wire[:0], w.wire...)
	spare.duplicates, spare.losses, spare.last, spare.lastAlone = w.duplicates, w.losses, w.last, w.lastAlone
	return spare
}

// AppendState appends the state.
func (w *world) AppendState(b []byte) []byte {
	little := binary.LittleEndian
	for _, p := range w.places {
		b = little.AppendUint32(b, p.id)
		b = append(b, p.left[:]...)
	}
	b = little.AppendUint64(b, w.last)
	b = little.AppendUint64(b, w.lastAlone)
	b = little.AppendUint32(b, uint32(w.duplicates)|uint32(w.losses)<<16)
	for _, msg := range w.wire {
		b = little.AppendUint32(b, msg)
	}
	return b
}

// local returns a machine's state.
func (m *model) local(i int, machine dmutex.Machine) (*local, error) {
	key := string(rune(i)) + text(machine)
	if id, known := m.localID[key]; known && !m.apart {
		return m.locals[id], m.answers(m.locals[id], machine)
	}
	l, wrong := m.inspect(machine, m.Members[i])
	l.id = uint32(len(m.locals))
	m.localID[key] = len(m.locals)
	m.locals = append(m.locals, l)
	return l, wrong
}

// answers checks that a machine whose text is that of a known state answers as that does.
func (m *model) answers(l *local, machine dmutex.Machine) error {
	for _, answer := range []struct {
		method  string
		is, was any
	}{
		{"Phase", machine.Phase(), l.phase},
		{"Fence", machine.Fence(), l.fence},
		{"Pending", machine.Pending(), l.pending},
		{"WaitsFor", machine.WaitsFor(nil), l.waits},
	} {
		if is, was := fmt.Sprint(answer.is), fmt.Sprint(answer.was); is != was {
			return search.Wrong(errBlind, "AppendText gives %q for two states of %d, and %s returns %s in one and %s in the other: the text must tell them apart",
				l.text, l.self, answer.method, was, is)
		}
	}
	return nil
}

// flight returns the number of a message.
func (m *model) flight(from int, msg dmutex.Message) uint32 {
	key := msg.String()
	id, known := m.flightID[key]
	if !known {
		id = uint32(len(m.flights))
		to := slices.Index(m.Members, msg.To)
		m.flights = append(m.flights, flight{msg.Clone(), to, uint32(from*len(m.Members) + to)})
		m.flightID[key] = id
	}
	return id
}

// step returns what an input does to node i in one of its states. msg counts
// only where do is deliver.
func (m *model) step(i int, from *local, do verb, msg uint32) *step {
	input := msg<<3 | uint32(do)
	for _, t := range from.taken {
		if t.input == input {
			return t.step
		}
	}
	s := m.run(i, from, do, msg)
	from.taken = append(from.taken, taken{input, &s})
	return &s
}

func (m *model) run(i int, was *local, do verb, msg uint32) (s step) {
	machine := was.machine.Clone()
	if do == forget {
		var born dmutex.Machine
		if born, s.fault = m.rebirth(machine, was.self, 1); s.fault == nil {
			machine = born
		}
	} else {
		var out []dmutex.Message
		in := m.message(do, msg)
		if out, s.fault = m.act(machine, was, do, in); s.fault == nil {
			for _, o := range out {
				s.sent = append(s.sent, m.flight(i, o))
			}
			s.fault = cmp.Or(m.borrowed(machine, was, do, msg, in), m.repeats(was, do, msg, &s, machine))
		}
	}
	if now := text(was.machine); s.fault == nil && now != was.text {
		s.fault = search.Wrong(errBlind, "an input to a clone of %q made it %q: Clone must copy what the machine changes, and machines must share nothing, such as a variable of the package", was.text, now)
	}
	to, wrong := m.local(i, machine)
	if to.before == nil {
		to.before, to.by, to.in = was, do, msg
	}
	s.to, s.flaw = to, wrong
	s.enters = was.phase != dmutex.Held && to.phase == dmutex.Held
	return s
}

// lane returns what messages that keep their order have in common: their channel, or
// nothing if the network is unordered.
func (m *model) lane(msg uint32) uint32 {
	if m.Network.Unordered {
		return msg
	}
	return m.flights[msg].channel
}

// Steps appends what may happen.
func (w *world) Steps(list []action) []action {
	calm := w.calm()
	for i, p := range w.places {
		switch {
		case p.phase == dmutex.Idle:
			if p.left[request] > 0 && request.lawful(p.local) {
				list = append(list, action{request, i})
			}
			if p.left[share] > 0 && p.sharer && share.lawful(p.local) {
				list = append(list, action{share, i})
			}
		case p.phase == dmutex.Waiting && p.left[cancel] > 0:
			list = append(list, action{cancel, i})
		case p.phase == dmutex.Held:
			list = append(list, action{release, i})
		}
		if p.stirs && (calm || p.left[tick] > 0) {
			list = append(list, action{tick, i})
		}
		if p.forgets && p.left[forget] > 0 {
			list = append(list, action{forget, i})
		}
	}
	for k, msg := range w.wire {
		if k > 0 && w.lane(msg) == w.lane(w.wire[k-1]) {
			continue // this message comes later, or is the same
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
	for _, p := range w.places {
		if p.phase == dmutex.Held {
			return false
		}
		unfinished = unfinished || p.phase == dmutex.Waiting || !p.clean
	}
	return unfinished
}

// Do takes a step. If something is wrong then, its error is a *Violation.
func (w *world) Do(a action) error {
	_, err := w.take(a)
	return err
}

// take takes a step, and returns it and the first thing that is wrong. A loss is no step of a machine.
func (w *world) take(a action) (s *step, wrong error) {
	if a.do.local() {
		if left := &w.places[a.at].left; a.do != release {
			left[a.do] -= min(left[a.do], 1)
		}
		return w.move(a.at, a.do, 0)
	}
	msg := w.wire[a.at]
	if a.do.consumes() {
		w.wire = slices.Delete(w.wire, a.at, a.at+1)
	}
	switch a.do {
	case duplicate:
		w.duplicates--
	case lose:
		w.losses--
		return nil, nil
	}
	return w.move(w.flights[msg].to, deliver, msg)
}

// move gives node i an input.
func (w *world) move(i int, do verb, msg uint32) (s *step, wrong error) {
	s = w.step(i, w.places[i].local, do, msg)
	w.places[i].local = s.to
	for _, msg := range s.sent {
		w.send(msg)
	}
	if s.enters {
		wrong = w.enter(i)
	}
	if wrong = worst(wrong, s.fault, s.flaw); wrong == nil && w.lived != nil {
		wrong = w.live(i, do, msg, s)
	}
	if wrong == nil {
		wrong = w.knows()
	}
	wrong = w.judged(wrong)
	if over := cmp.Or(s.fault, w.crowded(s.sent)); wrong == nil && over != nil {
		if wrong = over; w.graves {
			wrong = search.ErrOutside
		}
	}
	return s, wrong
}

// enter checks the grant of node i.
func (w *world) enter(i int) error {
	l, inside, other := w.places[i].local, 0, dmutex.None
	var overtaken error
	for _, p := range w.places {
		if p.phase == dmutex.Held {
			inside++
			if p.self != l.self && conflict(p.local, l) {
				other = p.self
			}
		}
		if w.Stamped && p.pending && conflict(p.local, l) && p.stamp.Less(l.stamp) {
			overtaken = search.Wrong(ErrOvertaken, "%d enters by its Stamp %v, and %v is pending", l.self, l.stamp, p.stamp)
		}
	}
	w.inside = max(w.inside, inside)
	w.sparse = w.sparse || l.fence != w.last+1
	last := w.last
	w.last = max(w.last, l.fence)
	if l.shared {
		last = w.lastAlone
	} else {
		w.lastAlone = w.last
	}
	return worst(enters(l.self, l.fence, last, other), overtaken)
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
		switch most := w.Network.Channel; {
		case most > 0 && n > most:
			return search.Wrong(ErrChannel, "%d messages are in flight from %d to %d", n, w.flights[msg].From, w.flights[msg].To)
		case most == 0 && n > plenty+w.Network.Duplicates:
			return search.Wrong(ErrChannel, "%d messages are in flight from %d to %d, and no algorithm needs so many: the machines answer each other without end", n, w.flights[msg].From, w.flights[msg].To)
		}
	}
	return nil
}

// plenty is how many messages may be in flight from one node to another where [Network.Channel] is not set.
const plenty = 250

// rests checks a state in which nothing is in flight.
func (w *world) rests() error { return w.judged(worst(w.shares(), w.finished())) }

// finished checks that nothing is unfinished if nothing more will happen.
func (w *world) finished() error {
	if !w.calm() {
		return nil
	}
	if slices.ContainsFunc(w.places, func(p place) bool { return p.stirs }) {
		return nil
	}
	for _, p := range w.places {
		if p.phase == dmutex.Waiting {
			return waits(p.self)
		}
	}
	left := slices.IndexFunc(w.places, func(p place) bool { return !p.clean })
	return search.Wrong(ErrLeftBehind, "all nodes are idle, no message is in flight, and Forget of %d returns false; this is left: %q", w.places[left].self, w.places[left].text)
}

// shares checks what holds between nodes that share if nothing is in flight.
func (w *world) shares() error {
	if len(w.wire) > 0 || !w.places[0].sharer {
		return nil
	}
	apart, some, all := dmutex.None, false, true
	for _, p := range w.places {
		if p.pending {
			apart = p.self
		}
		if p.phase != dmutex.Idle {
			some, all = true, all && p.shared
		}
	}
	if some && all && apart != dmutex.None {
		return search.Wrong(ErrApart, "%d has a pending request, and all nodes that wait for the lock or hold it share it: Cancel or Handle must withdraw the request", apart)
	}
	for _, p := range w.places {
		wanted := slices.ContainsFunc(w.places, func(o place) bool { return o.pending && !o.shared })
		if p.phase == dmutex.Held && p.shared && p.wanted != wanted {
			return search.Wrong(ErrWanted, "%d shares the lock, and its Wanted is %v, not %v", p.self, p.wanted, wanted)
		}
	}
	return nil
}

// Tell appends an action as a block of a script.
func (w *world) Tell(b []byte, a action, _ *world) []byte {
	if a.do.local() {
		return fmt.Appendf(b, "\n%v %v\n", a.do, w.Members[a.at])
	}
	return fmt.Appendf(b, "\n%v %v\n", a.do, w.flights[w.wire[a.at]].Message)
}
