package membership

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

// A world is a group of members whose processes start, crash, leave and return,
// the network between them, and one lock, as a transition system. In a view that
// acts the lock is perfect: it is granted to one member at a time, beginning with
// what was reported. So what is found here is about the views alone; the
// algorithms are explored across a view change elsewhere.
//
// The world keeps one copy of each state of a life and of each message that ever
// occurs, and runs the real machine once for each input to each of its states.
// A state of the whole is then a short list of numbers:
//
//	the state of each member's life
//	what is known of each member's lives: how many there were, and how the last ended
//	the faults that may still happen
//	the view in which something was granted last, and the highest round that was used
//	how many locks there are, and for each its view and its holder
//	the messages on their way, by channel and age
//
// The time of the machines stands still. Whatever they do when a pause ends may
// happen at any time.
type world struct {
	setup
	first []uint32 // the state at the beginning
	last  uint64   // the highest round that may be promised

	lives   []life
	flights []flight
	views   []View
	steps   []step

	lifeID   map[string]uint32
	flightID map[string]uint32
	viewID   map[string]uint32
	stepID   map[stepKey]uint32

	next    []uint32 // what apply returns
	actions []action // what possible returns
	scratch []byte
}

// A setup says who is there and what may go wrong.
type setup struct {
	n      int
	rounds uint32 // that may be begun, beside those of the founding
	away   int    // members that have left before the beginning, from the highest down
	fresh  bool   // nothing is founded at the beginning
	faults faults

	clocks  bool // a later life has a higher number by itself; else it is told
	behind  bool // likewise, but it does not know by its clock what former lives may have promised
	reports bool // a report may take time

	alter  alter // breaks a rule of the machine
	forget bool  // breaks a rule of the driver: what is held is not reported
	thaw   bool  // likewise: after the installation the old view still grants
}

// An alter stands around each input to a machine.
type alter func(m *Machine, msg *Message, input func() []Message) []Message

// faults are how often each may happen.
type faults struct {
	crashes int
	exits   int
	evicts  int // of a member whose process is gone
	lies    int // evictions of one whose process is not
	alarms  int // troubles in a view
	cuts    int // two lives lose what was between them and meet again
}

// A life is one state of a life and of what its driver keeps.
type life struct {
	*Machine
	fence uint64   // by which it holds, 0 if it does not
	met   []uint64 // the lives of the peers that its sessions have adopted
	phase Phase
	due   [kinds]bool // what waits for time to pass
}

const ( // what a tick may be for
	begins = iota
	decides
	kinds
)

// A flight is a message that may be on its way.
type flight struct {
	Message
	from, to         int
	fromLife, toLife uint64
	channel          uint32
	text             string
}

// A step is what one input does to one life.
type step struct {
	to    uint32
	sent  []uint32
	wrong string
}

type stepKey struct {
	at  uint32
	do  verb
	arg uint64
}

type verb uint8

const (
	deliver verb = iota
	meet
	tick
	report
	release
	rename
	end
	start
	acquire
	crash
	leave
	evict
	alarm
	cut
)

func (v verb) String() string {
	return [...]string{"deliver", "meets", "tick", "reports", "releases", "takes a higher number", "ends", "starts", "acquires", "crashes", "leaves", "evicts", "has trouble", "loses its session with"}[v]
}

// An action is something that may happen next.
type action struct {
	do   verb
	i, j int // members, or of deliver the place in the state
}

const (
	// In the word on a member's lives.
	renamed  = 1 << 8
	departed = 1 << 9  // the last life that was in a view has left
	vouched  = 1 << 10 // somebody vouches that the last life is dead

	lowNumber, highNumber = 1000, 2000 // of lives that no clock helps
)

func newWorld(s setup) *world {
	w := &world{
		setup: s, last: ^uint64(0),
		lifeID: map[string]uint32{}, flightID: map[string]uint32{}, viewID: map[string]uint32{}, stepID: map[stepKey]uint32{},
		lives: make([]life, 1), views: make([]View, 1), // the first are none
	}
	w.first = make([]uint32, w.head())
	w.setFaults(w.first, faults{})
	for i := range w.n {
		w.first = w.must(w.first, action{start, i, 0})
	}
	if !w.fresh {
		w.settle()
		for i := w.n - w.away; i < w.n; i++ {
			w.setFaults(w.first, faults{exits: 1})
			w.first = w.must(w.first, action{leave, i, 0})
			w.settle()
		}
	}
	w.last = uint64(w.rounds)
	for _, id := range w.first[:w.n] {
		if id != 0 {
			w.last = max(w.last, w.lives[id].view.Epoch+uint64(w.rounds))
		}
	}
	w.setFaults(w.first, s.faults)
	return w
}

// must applies an action that cannot go wrong.
func (w *world) must(s []uint32, a action) []uint32 {
	t, wrong := w.apply(s, a)
	if wrong != "" {
		panic(wrong)
	}
	return slices.Clone(t)
}

// settle lets happen what happens by itself.
func (w *world) settle() {
	for range 1000 {
		a := slices.MinFunc(w.possible(w.first), func(a, b action) int { return int(a.do) - int(b.do) })
		if a.do >= rename {
			return
		}
		w.first = w.must(w.first, a)
	}
	panic("it never comes to rest")
}

func (w *world) head() int { return 2*w.n + 4 }

// wire returns where the messages begin in a state.
func (w *world) wire(s []uint32) int { return w.head() + 2*int(s[2*w.n+3]) }

func (w *world) setFaults(s []uint32, f faults) {
	s[2*w.n] = uint32(f.crashes | f.exits<<5 | f.evicts<<10 | f.lies<<15 | f.alarms<<20 | f.cuts<<25)
}

// left returns how often a fault may still happen.
func (w *world) left(s []uint32, v verb) uint32 {
	shift := map[verb]int{crash: 0, leave: 5, evict: 10, end: 15, alarm: 20, cut: 25}[v]
	return s[2*w.n] >> shift & 31
}

func (w *world) take(s []uint32, v verb) {
	s[2*w.n] -= 1 << map[verb]int{crash: 0, leave: 5, evict: 10, end: 15, alarm: 20, cut: 25}[v]
}

// number returns the number of a member's last life.
func (w *world) number(s []uint32, i int) uint64 {
	k := uint64(s[w.n+i] & 0xff)
	switch {
	case w.clocks || k == 0:
		return k
	case s[w.n+i]&renamed != 0:
		return highNumber + k
	default:
		return lowNumber - k
	}
}

func (w *world) life(s []uint32, i int) *life { return &w.lives[s[i]] }

// possible lists what may happen in a state. The list is overwritten by the next
// call.
func (w *world) possible(s []uint32) []action {
	list := w.actions[:0]
	add := func(do verb, i, j int) { list = append(list, action{do, i, j}) }
	wire := w.wire(s)
	for k := wire; k < len(s); k++ {
		f := &w.flights[s[k]]
		if k > wire && w.flights[s[k-1]].channel == f.channel {
			continue // it comes later
		}
		if s[f.to] != 0 && w.life(s, f.to).met[f.from] == f.fromLife {
			add(deliver, k, 0)
		}
	}
	for i := range w.n {
		l := w.life(s, i)
		if s[i] == 0 {
			add(start, i, 0)
			continue
		}
		switch l.phase {
		case Older:
			add(rename, i, 0)
			continue
		case Stopped:
			add(end, i, 0)
			continue
		}
		for j := range w.n {
			if i == j {
				continue
			}
			if k := w.number(s, j); k != 0 && l.met[j] != k && (s[j] != 0 || s[w.n+j]&departed == 0) {
				add(meet, i, j) // its answer may still arrive when it is dead
			}
			if s[j] == 0 && w.left(s, evict) > 0 || s[j] != 0 && w.left(s, end) > 0 {
				if l.view.Epoch > 0 && !l.leaving && s[w.n+i]&vouched == 0 {
					add(evict, i, j)
				}
			}
			if i < j && w.left(s, cut) > 0 && s[j] != 0 && l.met[j] != 0 {
				add(cut, i, j)
			}
		}
		for k, due := range l.due {
			if due {
				add(tick, i, k)
			}
		}
		if l.view.Epoch > 0 && !l.reported {
			add(report, i, 0)
		}
		if lock := w.lock(s, i); lock > 0 && l.fence == 0 {
			if s[lock+1]&0xff == 0 && !l.leaving {
				add(acquire, i, 0)
			}
		}
		if l.fence != 0 {
			add(release, i, 0)
		}
		if w.left(s, crash) > 0 {
			add(crash, i, 0)
		}
		if w.left(s, leave) > 0 && l.fence == 0 && !l.leaving {
			add(leave, i, 0)
		}
		if w.left(s, alarm) > 0 && l.phase == Acting && !l.trouble {
			add(alarm, i, 0)
		}
	}
	w.actions = list
	return list
}

// fair reports whether something happens sooner or later by itself. A process
// that has left need not return, unless nobody is there any more that knows of it.
func (w *world) fair(s []uint32, a action) bool {
	switch {
	case a.do == start && s[w.n+a.i]&departed != 0:
		for i := range w.n {
			if s[i] != 0 && !w.life(s, i).leaving && w.life(s, i).complete.Epoch > 0 {
				return false
			}
		}
		return true
	default:
		return a.do <= start
	}
}

// lock returns where the lock stands that life i may use, 0 if there is none.
func (w *world) lock(s []uint32, i int) int {
	l := w.life(s, i)
	if l.phase != Acting && !w.thaw {
		return 0
	}
	at := 0
	for k := w.head(); k < w.wire(s); k += 2 {
		v := &w.views[s[k]]
		if v.Epoch == l.view.Epoch && slices.Equal(v.Members, l.view.Members) {
			return k
		}
		if w.thaw && v.Has(dmutex.NodeID(i+1), l.Machine.life) {
			at = k
		}
	}
	return at
}

// apply returns the state that an action leads to, and what is wrong with it. It
// is overwritten by the next call, which must not be given it.
func (w *world) apply(from []uint32, a action) ([]uint32, string) {
	s, wrong := w.leadsTo(append(w.next[:0], from...), a)
	w.next = s
	return s, wrong
}

func (w *world) leadsTo(s []uint32, a action) ([]uint32, string) {
	switch i := a.i; a.do {
	case start, rename:
		s[w.n+i] = s[w.n+i]&^vouched + 1
		if a.do == rename {
			if s = w.stop(s, i); w.clocks {
				return s, fmt.Sprintf("%d has to take another number, though clocks are right", i+1)
			}
			s[w.n+i] = s[w.n+i]&^departed | renamed
		} else {
			s[w.n+i] &^= renamed
		}
		s = w.purge(s, func(f *flight) bool { return f.from == i && w.life(s, f.to).met[i] != f.fromLife })
		return w.move(s, i, w.step(stepKey{0, start, uint64(i)<<60 | w.number(s, i)<<32 | uint64(s[2*w.n+2])}))
	case end:
		s[w.n+i] &^= departed
		return w.stop(s, i), ""
	case crash:
		w.take(s, crash)
		s[w.n+i] &^= departed
		return w.stop(s, i), ""
	case leave, alarm:
		w.take(s, a.do)
		return w.move(s, i, w.step(stepKey{s[i], a.do, 0}))
	case evict:
		if s[a.j] != 0 {
			w.take(s, end)
			s[w.n+a.j] |= vouched
		} else {
			w.take(s, evict)
		}
		return w.move(s, i, w.step(stepKey{s[i], evict, uint64(a.j)<<32 | uint64(s[2*w.n+2])}))
	case cut:
		w.take(s, cut)
		for _, pair := range [2][2]int{{i, a.j}, {a.j, i}} {
			s = w.sever(s, pair[0], pair[1])
			s[pair[0]] = w.step(stepKey{s[pair[0]], cut, uint64(pair[1])}).to
		}
		return s, ""
	case meet:
		return w.meet(s, i, a.j)
	case deliver:
		msg := s[i]
		s = slices.Delete(s, i, i+1)
		to := w.flights[msg].to
		return w.move(s, to, w.step(stepKey{s[to], deliver, uint64(msg)}))
	case tick, report:
		return w.move(s, i, w.step(stepKey{s[i], a.do, uint64(a.j)}))
	case release:
		if lock := w.lock(s, i); lock > 0 && s[lock+1]&0xff == uint32(i+1) {
			s[lock+1] &^= 0xff
		}
		return w.move(s, i, w.step(stepKey{s[i], release, 0}))
	case acquire:
		lock := w.lock(s, i)
		s[lock+1] |= uint32(i + 1)
		epoch := w.views[s[lock]].Epoch
		if s[w.n+i]&vouched == 0 {
			if last := w.views[s[2*w.n+1]]; w.clocks && !w.behind && (epoch < last.Epoch || epoch == last.Epoch && s[lock] != s[2*w.n+1]) {
				return s, w.excuse(s, fmt.Sprintf("a fence falls: %d is granted in %v, after a grant in %v", i+1, w.views[s[lock]], last))
			}
			if w.clocks {
				s[2*w.n+1] = s[lock]
			}
		}
		return w.move(s, i, w.step(stepKey{s[i], acquire, FirstFence(epoch) + 1}))
	}
	panic("what is that?")
}

// meet lets life i learn that the last life of member j is there.
func (w *world) meet(s []uint32, i, j int) ([]uint32, string) {
	life := w.number(s, j)
	s = w.purge(s, func(f *flight) bool { return f.from == j && f.to == i && f.fromLife != life })
	return w.move(s, i, w.step(stepKey{s[i], meet, uint64(j)<<32 | life}))
}

// stop ends a process. What it has sent may still arrive.
func (w *world) stop(s []uint32, i int) []uint32 {
	s[i] = 0
	s = w.purge(s, func(f *flight) bool { return f.to == i })
	return w.tidy(s)
}

func (w *world) sever(s []uint32, from, to int) []uint32 {
	return w.purge(s, func(f *flight) bool { return f.from == from && f.to == to })
}

func (w *world) purge(s []uint32, lost func(*flight) bool) []uint32 {
	k := w.wire(s)
	rest := slices.DeleteFunc(s[k:], func(id uint32) bool { return lost(&w.flights[id]) })
	return s[:k+len(rest)]
}

// move puts life i into the state to which a step leads.
func (w *world) move(s []uint32, i int, t *step) ([]uint32, string) {
	if t.wrong != "" {
		return s, w.excuse(s, t.wrong)
	}
	before, acted := View{}, false
	if s[i] != 0 {
		was := w.life(s, i)
		before, acted = was.view, was.complete.Epoch > 0
	}
	s[i] = t.to
	l := w.life(s, i)
	s = w.purge(s, func(f *flight) bool { return f.to == i && l.ignores(f) })
	for _, id := range t.sent {
		if f := &w.flights[id]; s[f.to] != 0 && w.number(s, f.to) == f.toLife && !w.life(s, f.to).ignores(f) {
			s = w.post(s, id)
		}
	}
	if w.clocks {
		s[2*w.n+2] = max(s[2*w.n+2], uint32(l.promised))
	}
	switch l.phase {
	case Left:
		if len(l.exit.Members) > 0 || l.view.Epoch > 0 {
			s[w.n+i] |= departed
			s = w.purge(s, func(f *flight) bool { return f.from == i && w.life(s, f.to).met[i] != f.fromLife })
		} // else the others may still wait for what its former life was in
		return w.stop(s, i), ""
	case Stopped:
		if s[w.n+i]&vouched == 0 && w.clocks && !w.behind {
			return s, fmt.Sprintf("%d is stopped, and nobody has vouched that it is dead", i+1)
		}
	}
	if l.view.Epoch != before.Epoch {
		s = w.tidy(s)
		if wrong := w.installed(s, i, before, acted); wrong != "" {
			return s, wrong
		}
	}
	if l.phase == Acting {
		var wrong string
		if s, wrong = w.act(s, i); wrong != "" {
			return s, wrong
		}
	}
	return s, w.exclusive(s)
}

// ignores reports whether a message has no effect on a life, now or later. It tells a
// view that is not newer than the life's, and nothing else that is new.
func (l *life) ignores(f *flight) bool {
	if f.Kind < Decide || f.View.Epoch > l.view.Epoch {
		return false
	}
	for _, who := range f.View.Members {
		if who.Life > l.member(who.Node).newest {
			return false
		}
	}
	if f.View.Epoch < l.view.Epoch {
		return true
	}
	return slices.Equal(f.View.Members, l.view.Members) && (f.Kind != Report || l.member(f.From).report)
}

// excuse takes what is wrong for the end of the run if somebody has lied: there may be
// two views of one epoch then, and fences that fall.
func (w *world) excuse(s []uint32, wrong string) string {
	for i := range w.n {
		if s[w.n+i]&vouched != 0 {
			return outside
		}
	}
	return wrong
}

// outside is what is wrong with a run that leaves the bounds.
const outside = "outside of the bounds"

// post puts a message behind those of its channel.
func (w *world) post(s []uint32, id uint32) []uint32 {
	s = append(s, id)
	k, channel := len(s)-1, w.flights[id].channel
	for ; k > w.wire(s) && w.flights[s[k-1]].channel > channel; k-- {
		s[k] = s[k-1]
	}
	s[k] = id
	return s
}

// installed checks a view that life i has installed.
func (w *world) installed(s []uint32, i int, before View, acted bool) string {
	l := w.life(s, i)
	for j := range w.n {
		if s[j] != 0 && (s[w.n+i]|s[w.n+j])&vouched == 0 && w.life(s, j).view.Epoch == l.view.Epoch && !slices.Equal(w.life(s, j).view.Members, l.view.Members) {
			return fmt.Sprintf("two views of one epoch: %v and %v", l.view, w.life(s, j).view)
		}
	}
	if s[w.n+i]&vouched == 0 || !acted {
		return ""
	}
	for k := w.head(); k < w.wire(s); k += 2 {
		if v := &w.views[s[k]]; before.Epoch < v.Epoch && v.Epoch < l.view.Epoch && v.life(dmutex.NodeID(i+1)) == 0 {
			return fmt.Sprintf("%d is back in %v, though the others went on without it in %v", i+1, l.view, *v)
		}
	}
	return ""
}

// act lets life i use the lock of its view.
func (w *world) act(s []uint32, i int) ([]uint32, string) {
	l := w.life(s, i)
	holder := uint32(0)
	if h := l.Holders(); len(h) > 0 {
		holder = uint32(h[0].Node)
	}
	if k := w.lock(s, i); k > 0 && w.views[s[k]].Epoch == l.view.Epoch {
		if s[k+1]>>8 != holder {
			return s, fmt.Sprintf("%d has another report of the holder in %v", i+1, l.view)
		}
		if s[k+1]&0xff == uint32(i+1) && l.fence == 0 {
			s[k+1] &^= 0xff // it was released between the report and this life's first act
		}
		return s, ""
	}
	w.scratch = appendView(w.scratch[:0], "", l.view)
	id, ok := w.viewID[string(w.scratch)]
	if !ok {
		id = uint32(len(w.views))
		w.views = append(w.views, l.view)
		w.viewID[string(w.scratch)] = id
	}
	k := w.head()
	for k < w.wire(s) && w.views[s[k]].Epoch < l.view.Epoch {
		k += 2
	}
	s = slices.Insert(s, k, id, holder|holder<<8)
	s[2*w.n+3]++
	return w.act(s, i)
}

// tidy drops the locks that nobody can use any more.
func (w *world) tidy(s []uint32) []uint32 {
	for k := w.head(); k < w.wire(s); {
		used := false
		for i := range w.n {
			used = used || s[i] != 0 && w.life(s, i).view.Epoch == w.views[s[k]].Epoch || w.thaw
		}
		if used {
			k += 2
			continue
		}
		s = slices.Delete(s, k, k+2)
		s[2*w.n+3]--
	}
	return s
}

// exclusive checks that one life at most holds the lock. Those do not count whose
// death somebody has vouched for.
func (w *world) exclusive(s []uint32) string {
	first := 0
	for i := range w.n {
		if s[i] == 0 || w.life(s, i).fence == 0 || s[w.n+i]&vouched != 0 {
			continue
		}
		if first > 0 {
			return fmt.Sprintf("two holders: %d and %d", first, i+1)
		}
		first = i + 1
	}
	return ""
}

// good reports whether all is well: the lives that are there are the view, and
// act in it.
func (w *world) good(s []uint32) bool {
	var v *View
	n := 0
	for i := range w.n {
		if s[i] == 0 {
			continue
		}
		l := w.life(s, i)
		if n++; l.phase != Acting || l.leaving || v != nil && l.view.Epoch != v.Epoch {
			return false
		}
		v = &l.view
	}
	return n == 0 || len(v.Members) == n
}

// complaint names the lives that wait forever in a state in which nothing happens by
// itself.
func (w *world) complaint(s []uint32) string {
	var b strings.Builder
	b.WriteString("stuck:")
	for i := range w.n {
		if l := w.life(s, i); s[i] != 0 {
			fmt.Fprintf(&b, " %d is %v in %v,", i+1, l.phase, l.view)
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// beyond reports whether somebody has promised too high a round.
func (w *world) beyond(s []uint32) bool {
	for i := range w.n {
		if s[i] != 0 && w.life(s, i).promised > w.last {
			return true
		}
	}
	return false
}

// step returns what an input does to a life.
func (w *world) step(key stepKey) *step {
	id, ok := w.stepID[key]
	if !ok {
		id = uint32(len(w.steps))
		w.steps = append(w.steps, w.run(key))
		w.stepID[key] = id
	}
	return &w.steps[id]
}

func (w *world) run(key stepKey) (t step) {
	var l life
	if key.do == start {
		i, number, highest := int(key.arg>>60), key.arg>>32&0xffff, key.arg&0xffffffff
		cfg := Config{Self: dmutex.NodeID(i + 1), Members: w.everybody(), Life: number}
		if w.clocks && !w.behind {
			cfg.Clock = highest
		}
		m, err := New(cfg)
		if err != nil {
			panic(err)
		}
		l = life{Machine: m, met: make([]uint64, w.n)}
	} else {
		l = w.lives[key.at]
		l.Machine, l.met = l.Clone(), slices.Clone(l.met)
	}
	var msg *Message
	var refused error
	input := func() []Message { return nil }
	l.freeze()
	switch key.do {
	case start:
		input = func() []Message { return l.Tick(0) }
	case deliver:
		c := w.flights[key.arg].Message
		msg = &c
		input = func() []Message {
			out, err := l.Handle(0, *msg)
			refused = err
			return out
		}
	case meet:
		j, life := key.arg>>32, key.arg&0xffffffff
		l.met[j] = life
		input = func() []Message { return l.Met(0, dmutex.NodeID(j+1), life) }
	case cut:
		l.met[key.arg] = 0
	case tick:
		l.beginAt, l.courtesy = later(l.beginAt, key.arg == begins), min(l.courtesy, later(0, key.arg == decides))
		input = func() []Message { return l.Tick(1) }
	case report:
		input = func() []Message { return l.Report(0, w.holds(&l)) }
	case release:
		l.fence = 0
	case acquire:
		l.fence = key.arg
	case leave:
		input = func() []Message { return l.Leave(0) }
	case alarm:
		input = func() []Message { return l.Trouble(0, l.view.Epoch) }
	case evict:
		input = func() []Message {
			if w.clocks {
				l.Clock(key.arg&0xffffffff + 1) // time has passed
			}
			out, err := l.Evict(0, dmutex.NodeID(key.arg>>32+1))
			refused = err
			return out
		}
	}
	broken := w.alter
	if broken == nil {
		broken = func(_ *Machine, _ *Message, input func() []Message) []Message { return input() }
	}
	out := broken(l.Machine, msg, input)
	if !w.reports && l.view.Epoch > 0 && !l.reported {
		out = append(out, broken(l.Machine, nil, func() []Message { return l.Report(0, w.holds(&l)) })...)
	}
	if refused != nil {
		return step{wrong: "refused: " + refused.Error()}
	}
	for _, o := range out {
		if l.met[o.To-1] != 0 {
			t.sent = append(t.sent, w.flight(l.Machine.life, l.met[o.To-1], o))
		}
	}
	if l.phase = l.Phase(); l.phase == Stopped {
		l.fence = 0
	}
	t.to = w.intern(l)
	return t
}

func (w *world) holds(l *life) []Hold {
	if l.fence == 0 || w.forget {
		return nil
	}
	return []Hold{{"x", l.fence}}
}

func (w *world) everybody() (all []dmutex.NodeID) {
	for i := range w.n {
		all = append(all, dmutex.NodeID(i+1))
	}
	return all
}

// freeze makes of all times that which may be later and that which may not, so
// that lives of equal text have equal machines.
func (l *life) freeze() {
	m := l.Machine
	m.resetAt, m.quarrel, m.clock = 0, 0, 0
	m.fails = 1 // it pauses
	m.beginAt = later(m.beginAt, false)
	if m.courtesy != 0 {
		m.courtesy = 2
	}
}

func later(at int64, now bool) int64 {
	switch {
	case at == never:
		return never
	case now:
		return 1
	default:
		return 2
	}
}

// intern returns the number of a life's state.
func (w *world) intern(l life) uint32 {
	b, _ := l.AppendText(w.scratch[:0])
	b = appendFence(b, " holds ", l.fence)
	b = appendFlag(b, " late", l.courtesy == 0)
	for _, life := range l.met {
		b = strconv.AppendUint(append(b, ' '), life, 10)
	}
	w.scratch = b
	id, ok := w.lifeID[string(b)]
	if !ok {
		l.due = [kinds]bool{
			begins:  l.beginAt != never && l.ended == Outside,
			decides: l.round != 0 && l.courtesy != 0 && l.late() && l.ended == Outside,
		}
		id = uint32(len(w.lives))
		w.lives = append(w.lives, l)
		w.lifeID[string(b)] = id
	}
	return id
}

// flight returns the number of a message.
func (w *world) flight(from, to uint64, msg Message) uint32 {
	text := msg.String()
	key := fmt.Sprint(from, to, text)
	id, ok := w.flightID[key]
	if !ok {
		i, j := int(msg.From)-1, int(msg.To)-1
		id = uint32(len(w.flights))
		w.flights = append(w.flights, flight{Message: msg, from: i, to: j, fromLife: from, toLife: to, channel: uint32(i*w.n + j), text: text})
		w.flightID[key] = id
	}
	return id
}

// line writes an action down.
func (w *world) line(s []uint32, a action) string {
	switch {
	case a.do == deliver:
		return "deliver " + w.flights[s[a.i]].text
	case a.do == meet:
		return fmt.Sprintf("%d meets %d#%d", a.i+1, a.j+1, w.number(s, a.j))
	case a.do == evict || a.do == cut:
		return fmt.Sprintf("%d %v %d", a.i+1, a.do, a.j+1)
	case a.do == tick && a.j == begins:
		return fmt.Sprintf("%d begins a round", a.i+1)
	case a.do == tick:
		return fmt.Sprintf("%d decides without the others", a.i+1)
	default:
		return fmt.Sprintf("%d %v", a.i+1, a.do)
	}
}

// tell writes down an action, and what it has changed.
func (w *world) tell(b *strings.Builder, s, t []uint32, a action) {
	b.WriteString(w.line(s, a) + "\n")
	w.changes(b, s, t)
}

func (w *world) changes(b *strings.Builder, s, t []uint32) {
	for i := range w.n {
		l, was := w.life(t, i), w.life(s, i)
		switch {
		case t[i] == 0 && s[i] != 0 && (t[w.n+i]&^s[w.n+i])&departed != 0:
			fmt.Fprintf(b, "    %d#%d has left\n", i+1, was.Machine.life)
		case t[i] == 0 || t[i] == s[i]:
		case s[i] == 0 || was.phase != l.phase || was.view.Epoch != l.view.Epoch:
			fmt.Fprintf(b, "    %d#%d is %v", i+1, l.Machine.life, l.phase)
			if l.view.Epoch > 0 {
				fmt.Fprintf(b, " in %v", l.view)
			}
			b.WriteByte('\n')
		case was.fence != l.fence:
			fmt.Fprintf(b, "    %d#%d holds", i+1, l.Machine.life)
			if l.fence == 0 {
				b.WriteString(" nothing")
			}
			fmt.Fprintf(b, "%s\n", appendFence(nil, " x by ", l.fence))
		}
	}
}
