package consent

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/search"
)

// A world is a state of a group of members whose processes start, crash, leave and
// return, the network between them, and one lock. In a view that acts the lock is
// perfect: it is granted to one member at a time, beginning with the reported holder. So
// this explores the views alone. TestAcross explores the algorithms across a view change.
//
// The time of the machines stands still. A pause may end at any time.
type world struct {
	*model
	places  []place         // by member
	locks   []viewtest.Lock // by epoch
	wire    []uint32        // messages on their way, by channel and age
	left    faults          // that may still happen
	granted uint32          // the view in which something was granted last
	highest uint32          // the highest round that was used
	lied    uint8           // the lies that were told, as bits
}

// A place is a member: the life that is there, and what is known of all its lives.
type place struct {
	life     uint32 // its state, 0 if there is none
	lives    uint8  // how many there were
	renamed  bool   // the last one has taken a higher number
	departed bool   // the last one that was in a view has left
	vouched  bool   // somebody vouches that the last one is dead
}

// A model is what the states of a group share. It keeps one copy of each state of a life
// and of each message that ever occurs, and runs the real machine once for each input to
// each of its states.
type model struct {
	setup
	last uint64 // the highest round that may be promised

	lives   viewtest.Catalog[life]
	flights viewtest.Catalog[flight]
	views   viewtest.ViewCatalog
	steps   []step
	stepID  map[stepKey]uint32
	scratch []byte
}

// A setup says who is there and what may go wrong.
type setup struct {
	n      int
	rounds uint32 // that may be begun, beside those of the founding
	away   int    // members that have left before the beginning, from the highest down
	fresh  bool   // nothing is founded at the beginning
	faults faults

	clocks  bool // a later life has a higher number; else it takes one when it is told
	behind  bool // with clocks: a life does not know by its clock what former lives may have promised
	reports bool // a report may take time

	alter  alter // breaks a rule of the machine
	forget bool  // breaks a rule of the driver: holds are not reported
	thaw   bool  // likewise: after the installation the old view still grants
}

// An alter wraps each input to a machine.
type alter func(m *Machine, msg *membership.Message, input func() membership.Output) membership.Output

// faults are how often each may happen.
type faults struct {
	crashes uint8
	exits   uint8
	evicts  uint8 // of a member whose process is gone
	lies    uint8 // evictions of a member whose process is there
	alarms  uint8 // troubles in a view
	cuts    uint8 // two lives lose the messages between them and meet again

	slanders uint8 // the last member lies about another
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
	asks
	despairs
	kinds
)

// A flight is a message that may be on its way.
type flight struct {
	membership.Message
	from, to         int
	fromLife, toLife uint64
	channel          uint32
	text             string
}

// A step is what one input does to one life.
type step struct {
	to       uint32
	sent     []uint32
	installs bool
	wrong    error
}

type stepKey struct {
	at  uint32
	do  verb
	arg argument
}

// An argument is what an input says besides the verb. What the verb does not need is zero.
type argument struct {
	flight  uint32 // of deliver
	member  uint8  // of start: which; of meet, cut and evict: the other
	timer   uint8  // of tick
	life    uint64 // of start and meet
	highest uint32 // of start and evict: the highest round that was used
	fence   uint64 // of acquire
}

const lowNumber, highNumber = 1000, 2000 // of lives that no clock helps

// newWorld returns the state at the beginning.
func newWorld(s setup) *world {
	m := &model{
		setup: s, last: ^uint64(0), lives: viewtest.NewCatalog[life](), flights: viewtest.NewCatalog[flight](), views: viewtest.ViewCatalog{Catalog: viewtest.NewCatalog[membership.View]()},
		stepID: map[stepKey]uint32{},
	}
	w := &world{model: m, places: make([]place, s.n)}
	for i := range w.places {
		must(w.Do(action{start, i, 0}))
	}
	if !w.fresh {
		w.settle()
		for i := w.n - w.away; i < w.n; i++ {
			w.left.exits = 1
			must(w.Do(action{leave, i, 0}))
			w.settle()
		}
	}
	last := uint64(w.rounds)
	for i, p := range w.places {
		if p.life != 0 {
			last = max(last, w.life(i).in.View.Epoch+uint64(w.rounds))
		}
	}
	w.last, w.left = last, s.faults
	return w
}

// settle takes the steps that happen by themselves, until there is none.
func (w *world) settle() {
	for range 1000 {
		a := slices.MinFunc(w.Steps(nil), func(a, b action) int { return int(a.do) - int(b.do) })
		if a.do >= rename {
			return
		}
		must(w.Do(a))
	}
	panic("it never comes to rest")
}

// Clone returns a copy, in the memory of spare if it is not nil.
func (w *world) Clone(spare *world) *world {
	if spare == nil {
		b := new(struct { // in one piece, which is faster to visit
			world
			places [3]place
			locks  [2]viewtest.Lock
			wire   [8]uint32
		})
		spare = &b.world
		spare.model, spare.places, spare.locks, spare.wire = w.model, b.places[:0], b.locks[:0], b.wire[:0]
	}
	spare.places = append(spare.places[:0], w.places...)
	spare.locks = append(spare.locks[:0], w.locks...)
	spare.wire = append(spare.wire[:0], w.wire...)
	spare.left, spare.granted, spare.highest, spare.lied = w.left, w.granted, w.highest, w.lied
	return spare
}

// AppendState appends the state.
func (w *world) AppendState(b []byte) []byte {
	little := binary.LittleEndian
	for _, p := range w.places {
		b = append(little.AppendUint32(b, p.life), p.lives, viewtest.Bit(p.renamed)|viewtest.Bit(p.departed)<<1|viewtest.Bit(p.vouched)<<2)
	}
	f := w.left
	b = append(b, f.crashes, f.exits, f.evicts, f.lies, f.alarms, f.cuts, f.slanders, w.lied)
	b = little.AppendUint64(b, uint64(w.granted)|uint64(w.highest)<<32)
	return viewtest.AppendNumbered(viewtest.AppendLocks(b, w.locks), w.wire)
}

// number returns the number of a member's last life.
func (w *world) number(i int) uint64 {
	switch p := &w.places[i]; {
	case w.clocks || p.lives == 0:
		return uint64(p.lives)
	case p.renamed:
		return highNumber + uint64(p.lives)
	default:
		return lowNumber - uint64(p.lives)
	}
}

func (w *world) life(i int) *life { return &w.lives.All[w.places[i].life] }

func (w *world) flight(id uint32) *flight { return &w.flights.All[id] }

// Steps appends what may happen.
func (w *world) Steps(list []action) []action {
	add := func(do verb, i, j int) { list = append(list, action{do, i, j}) }
	for k, id := range w.wire {
		f := w.flight(id)
		if k > 0 && w.flight(w.wire[k-1]).channel == f.channel {
			continue // it comes later
		}
		if w.places[f.to].life != 0 && w.life(f.to).met[f.from] == f.fromLife {
			add(deliver, k, 0)
		}
	}
	for i := range w.places {
		me, l := &w.places[i], w.life(i)
		if me.life == 0 {
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
		for j := range w.places {
			if i == j {
				continue
			}
			other := &w.places[j]
			if k := w.number(j); k != 0 && l.met[j] != k && (other.life != 0 || !other.departed) {
				add(meet, i, j) // its answer may still arrive when it is dead
			}
			if other.life == 0 && w.left.evicts > 0 || other.life != 0 && w.left.lies > 0 {
				if l.in.View.Epoch > 0 && !l.leaving && l.phase != Doubting && !me.vouched {
					add(evict, i, j)
				}
			}
			if i < j && w.left.cuts > 0 && other.life != 0 && l.met[j] != 0 {
				add(cut, i, j)
			}
		}
		for k, due := range l.due {
			if due && (k != despairs || !w.contradicted(i)) {
				add(tick, i, k)
			}
		}
		if l.in.View.Epoch > 0 && !l.in.Reported {
			add(report, i, 0)
		}
		if lock := w.lock(i); lock != nil && lock.Holder == 0 && l.fence == 0 && !l.leaving {
			add(acquire, i, 0)
		}
		if l.fence != 0 {
			add(release, i, 0)
		}
		if w.left.crashes > 0 {
			add(crash, i, 0)
		}
		if w.left.exits > 0 && l.fence == 0 && !l.leaving {
			add(leave, i, 0)
		}
		if w.left.alarms > 0 && l.phase == Acting && !l.trouble {
			add(alarm, i, 0)
		}
	}
	return w.slanderings(list)
}

// fair reports whether something happens sooner or later by itself. A process that has left
// need not return while another one stays that has completed a view.
func (w *world) fair(a action) bool {
	if a.do == start && w.places[a.i].departed {
		for i, p := range w.places {
			if p.life != 0 && !w.life(i).leaving && w.life(i).in.Complete.Epoch > 0 {
				return false
			}
		}
	}
	return a.do <= start
}

// lock returns the lock that life i may use, nil if there is none.
func (w *world) lock(i int) *viewtest.Lock {
	l := w.life(i)
	if l.phase != Acting && !w.thaw {
		return nil
	}
	return w.views.Find(w.locks, &l.in.View, membership.Member{Node: dmutex.NodeID(i + 1), Life: l.Machine.life}, w.thaw)
}

// Do takes a step. It returns [search.ErrOutside] if a life has promised too high a round.
func (w *world) Do(a action) error {
	if err := w.do(a); err != nil {
		return err
	}
	for i, p := range w.places {
		if p.life != 0 && w.life(i).highest > w.last {
			return search.ErrOutside
		}
	}
	return nil
}

func (w *world) do(a action) error {
	i := a.i
	switch a.do {
	case deliver:
		id := w.wire[i]
		w.wire = slices.Delete(w.wire, i, i+1)
		return w.input(w.flight(id).to, deliver, argument{flight: id})
	case acquire:
		return w.acquire(i)
	case slander:
		w.slander(i, a.j)
		return nil
	}
	me := &w.places[i]
	switch a.do {
	case start, rename:
		me.vouched = false
		me.lives++
		if a.do == rename {
			if w.stop(i); w.clocks && w.lied == 0 {
				return viewtest.Wrongf("%d has to take another number, though clocks are right", i+1)
			}
			me.departed = false
		}
		me.renamed = a.do == rename
		w.purge(func(f *flight) bool { return f.from == i && w.life(f.to).met[i] != f.fromLife })
		return w.input(i, start, argument{member: uint8(i), life: w.number(i), highest: w.highest})
	case end, crash:
		if a.do == crash {
			w.left.crashes--
		}
		me.departed = false
		w.stop(i)
		return nil
	case leave, alarm:
		if a.do == leave {
			w.left.exits--
		} else {
			w.left.alarms--
		}
		return w.input(i, a.do, argument{})
	case evict:
		if other := &w.places[a.j]; other.life != 0 {
			w.left.lies--
			other.vouched = true
		} else {
			w.left.evicts--
		}
		return w.input(i, evict, argument{member: uint8(a.j), highest: w.highest})
	case cut:
		w.left.cuts--
		w.purge(func(f *flight) bool { return min(f.from, f.to) == i && max(f.from, f.to) == a.j })
		for _, pair := range [2][2]int{{i, a.j}, {a.j, i}} {
			p := &w.places[pair[0]]
			p.life = w.step(stepKey{p.life, cut, argument{member: uint8(pair[1])}}).to
		}
		return nil
	case meet: // the last life of member j is there
		life := w.number(a.j)
		w.purge(func(f *flight) bool { return f.from == a.j && f.to == i && f.fromLife != life })
		return w.input(i, meet, argument{member: uint8(a.j), life: life})
	case tick, report:
		return w.input(i, a.do, argument{timer: uint8(a.j)})
	case release:
		if lock := w.lock(i); lock != nil && lock.Holder == uint8(i+1) {
			lock.Holder = 0
		}
		return w.input(i, release, argument{})
	}
	panic("what is that?")
}

// acquire grants the lock to life i.
func (w *world) acquire(i int) error {
	lock := w.lock(i)
	lock.Holder = uint8(i + 1)
	view := &w.views.All[lock.View]
	if !w.places[i].vouched {
		if last := w.views.All[w.granted]; w.clocks && !w.behind && (view.Epoch < last.Epoch || view.Epoch == last.Epoch && lock.View != w.granted) {
			return w.excuse(viewtest.Wrongf("a fence falls: %d is granted in %v, after a grant in %v", i+1, viewtest.View(*view), viewtest.View(last)))
		}
		if w.clocks {
			w.granted = lock.View
		}
	}
	return w.input(i, acquire, argument{fence: epochs.First(view.Epoch) + 1})
}

// stop ends a process. Its messages may still arrive.
func (w *world) stop(i int) {
	w.places[i].life = 0
	w.purge(func(f *flight) bool { return f.to == i })
	w.tidy()
}

func (w *world) purge(lost func(*flight) bool) {
	w.wire = slices.DeleteFunc(w.wire, func(id uint32) bool { return lost(w.flight(id)) })
}

// input gives life i an input.
func (w *world) input(i int, do verb, arg argument) error {
	me := &w.places[i]
	at := me.life
	if do == start {
		at = 0
	}
	t := w.step(stepKey{at, do, arg})
	if t.wrong != nil {
		return w.excuse(t.wrong)
	}
	me.life = t.to
	l := w.life(i)
	w.purge(func(f *flight) bool { return f.to == i && l.ignores(f) })
	for _, id := range t.sent {
		if f := w.flight(id); w.places[f.to].life != 0 && w.number(f.to) == f.toLife && !w.life(f.to).ignores(f) {
			w.post(id)
		}
	}
	if w.clocks {
		w.highest = max(w.highest, uint32(l.highest))
	}
	switch l.phase {
	case Left:
		if len(l.exit.Members) > 0 || l.in.View.Epoch > 0 {
			me.departed = true
			w.purge(func(f *flight) bool { return f.from == i && w.life(f.to).met[i] != f.fromLife })
		} // else the others may still wait in a view with its former life
		w.stop(i)
		return nil
	case Stopped:
		believed := w.lied != 0 && (l.leaving || do == tick && arg.timer == despairs)
		if !me.vouched && w.clocks && !w.behind && !believed {
			return viewtest.Wrongf("%d is stopped, and nobody has vouched that it is dead", i+1)
		}
	}
	if l.phase == Doubting && w.lied == 0 && !me.vouched && w.clocks && !w.behind {
		return viewtest.Wrongf("%d is in doubt, and nobody has vouched that it is dead", i+1)
	}
	if t.installs {
		w.tidy()
		if err := w.installed(i, &w.lives.All[at]); err != nil {
			return err
		}
	}
	if l.phase == Acting {
		if err := w.act(i); err != nil {
			return err
		}
	}
	return w.exclusive()
}

// ignores reports whether a message has no effect on a life, now or later. Such a message
// tells a view that is not newer than the life's, and nothing else that is new.
func (l *life) ignores(f *flight) bool {
	if f.Kind < membership.Decide || f.View.Epoch > l.in.View.Epoch {
		return false
	}
	for _, who := range f.View.Members {
		if who.Life > l.member(who.Node).newest {
			return false
		}
	}
	if f.View.Epoch < l.in.View.Epoch {
		return true
	}
	return slices.Equal(f.View.Members, l.in.View.Members) && (f.Kind != membership.Report || l.in.ReportOf(f.From).Node == f.From)
}

// excuse ends the run without an error if somebody has lied: there may be two views of one
// epoch then, and fences that fall.
func (w *world) excuse(wrong error) error {
	if slices.ContainsFunc(w.places, func(p place) bool { return p.vouched }) {
		return search.ErrOutside
	}
	return wrong
}

// post puts a message behind those of its channel.
func (w *world) post(id uint32) {
	k, channel := len(w.wire), w.flight(id).channel
	for w.wire = append(w.wire, id); k > 0 && w.flight(w.wire[k-1]).channel > channel; k-- {
		w.wire[k] = w.wire[k-1]
	}
	w.wire[k] = id
}

// installed checks a view that life i has installed, which was so before.
func (w *world) installed(i int, was *life) error {
	me, l := &w.places[i], w.life(i)
	for j, p := range w.places {
		if other := w.life(j); p.life != 0 && !me.vouched && !p.vouched && other.in.View.Epoch == l.in.View.Epoch && !slices.Equal(other.in.View.Members, l.in.View.Members) {
			return viewtest.Wrongf("two views of one epoch: %v and %v", viewtest.View(l.in.View), viewtest.View(other.in.View))
		}
	}
	if !me.vouched || was.in.Complete.Epoch == 0 {
		return nil
	}
	for _, lock := range w.locks {
		if v := &w.views.All[lock.View]; was.in.View.Epoch < v.Epoch && v.Epoch < l.in.View.Epoch && v.Life(dmutex.NodeID(i+1)) == 0 {
			return viewtest.Wrongf("%d is back in %v, though the others went on without it in %v", i+1, viewtest.View(l.in.View), viewtest.View(*v))
		}
	}
	return nil
}

// act lets life i use the lock of its view.
func (w *world) act(i int) error {
	l := w.life(i)
	holder := uint8(0)
	if h := viewtest.Carried(l.in.Holdings...); len(h) > 0 {
		holder = uint8(h[0].Node)
	}
	lock := w.lock(i)
	if lock == nil || w.views.All[lock.View].Epoch != l.in.View.Epoch {
		w.locks = w.views.Lock(w.locks, l.in.View, holder)
		lock = w.lock(i)
	}
	if lock.Reported != holder {
		return viewtest.Wrongf("%d has another report of the holder in %v", i+1, viewtest.View(l.in.View))
	}
	if lock.Holder == uint8(i+1) && l.fence == 0 {
		lock.Holder = 0 // it was released between the report and this life's first act
	}
	return nil
}

// tidy drops the locks that nobody can use any more.
func (w *world) tidy() {
	w.locks = slices.DeleteFunc(w.locks, func(k viewtest.Lock) bool {
		used := w.thaw
		for i, p := range w.places {
			used = used || p.life != 0 && w.life(i).in.View.Epoch == w.views.All[k.View].Epoch
		}
		return !used
	})
}

// exclusive checks that at most one life holds the lock. A life does not count if somebody
// has vouched that it is dead.
func (w *world) exclusive() error {
	first := 0
	for i, p := range w.places {
		if p.life == 0 || w.life(i).fence == 0 || p.vouched {
			continue
		}
		if first > 0 {
			return viewtest.Wrongf("two holders: %d and %d", first, i+1)
		}
		first = i + 1
	}
	return nil
}

// good reports whether all is well: the lives that are there are the members of one view,
// and act in it.
func (w *world) good() bool {
	if w.lied>>hearsay != 0 || w.outlived() {
		return true
	}
	var v *membership.View
	n := 0
	for i, p := range w.places {
		if p.life == 0 {
			continue
		}
		l := w.life(i)
		if n++; l.phase != Acting || l.leaving || v != nil && l.in.View.Epoch != v.Epoch {
			return false
		}
		v = &l.in.View
	}
	return n == 0 || len(v.Members) == n
}

// outlived reports whether a life has heard of a higher life of a member than the present
// one, because a clock was set back. It waits for the higher life, and its word alone does
// not end the present life.
func (w *world) outlived() bool {
	for i, p := range w.places {
		for j, q := range w.places {
			if p.life != 0 && q.life != 0 && w.life(i).member(dmutex.NodeID(j+1)).newest > w.number(j) {
				return true
			}
		}
	}
	return false
}

// stuck names the lives that wait forever in a state in which nothing happens by itself.
func (w *world) stuck() error {
	var waiting []string
	for i, p := range w.places {
		if l := w.life(i); p.life != 0 {
			waiting = append(waiting, fmt.Sprintf("%d is %v in %v", i+1, l.phase, viewtest.View(l.in.View)))
		}
	}
	return viewtest.StuckAt(waiting)
}

// step returns what an input does to a life.
func (w *model) step(key stepKey) *step {
	id, ok := w.stepID[key]
	if !ok {
		id = uint32(len(w.steps))
		w.steps = append(w.steps, w.run(key))
		w.stepID[key] = id
	}
	return &w.steps[id]
}

func (w *model) run(key stepKey) (t step) {
	var l life
	arg := &key.arg
	if key.do == start {
		cfg := Config{Self: dmutex.NodeID(arg.member + 1), Members: w.everybody(), Life: arg.life}
		if w.clocks && !w.behind {
			cfg.Clock = uint64(arg.highest)
		}
		m, err := New(cfg)
		if err != nil {
			panic(err)
		}
		l = life{Machine: m, met: make([]uint64, w.n)}
	} else {
		l = w.lives.All[key.at]
		l.Machine, l.met = l.Clone(), slices.Clone(l.met)
	}
	var msg *membership.Message
	var refused error
	input := func() membership.Output { return membership.Output{} }
	l.freeze()
	switch key.do {
	case start:
		input = func() membership.Output { return l.Tick(0) }
	case deliver:
		c := w.flights.All[arg.flight].Message
		msg = &c
		input = func() membership.Output {
			out, err := l.Handle(0, *msg)
			refused = err
			return out
		}
	case meet:
		l.met[arg.member] = arg.life
		input = func() membership.Output { return l.Met(0, dmutex.NodeID(arg.member+1), arg.life) }
	case cut:
		l.met[arg.member] = 0
	case tick:
		l.beginAt, l.courtesy = later(l.beginAt, arg.timer == begins), min(l.courtesy, later(0, arg.timer == decides))
		l.askAt, l.doubtAt = later(0, arg.timer == asks), later(l.doubtAt, arg.timer == despairs)
		input = func() membership.Output { return l.Tick(1) }
	case report:
		input = func() membership.Output { return l.Report(0, w.holds(&l)) }
	case release:
		l.fence = 0
	case acquire:
		l.fence = arg.fence
	case leave:
		input = func() membership.Output { return l.Leave(0) }
	case alarm:
		input = func() membership.Output { return l.Trouble(0, l.in.View.Epoch) }
	case evict:
		input = func() membership.Output {
			if w.clocks {
				l.Clock(uint64(arg.highest) + 1) // time has passed
			}
			out, err := l.Evict(0, dmutex.NodeID(arg.member+1))
			refused = err
			return out
		}
	}
	broken := w.alter
	if broken == nil {
		broken = func(_ *Machine, _ *membership.Message, input func() membership.Output) membership.Output {
			return input()
		}
	}
	out := broken(l.Machine, msg, input)
	if !w.reports && l.in.View.Epoch > 0 && !l.in.Reported {
		out = out.And(broken(l.Machine, nil, func() membership.Output { return l.Report(0, w.holds(&l)) }))
	}
	if refused != nil && (w.faults.slanders == 0 || msg.From != dmutex.NodeID(w.n)) {
		return step{wrong: viewtest.Wrongf("refused: %v", refused)}
	}
	t.installs = viewtest.Installs(out)
	for _, o := range out.Messages {
		if l.met[o.To-1] != 0 {
			t.sent = append(t.sent, w.send(l.Machine.life, l.met[o.To-1], o))
		}
	}
	if l.phase = l.Phase(); l.phase == Stopped {
		l.fence = 0
	}
	t.to = w.intern(l)
	return t
}

func (w *model) holds(l *life) []membership.Hold {
	if l.fence == 0 || w.forget {
		return nil
	}
	return []membership.Hold{{Lock: "x", Fence: l.fence}}
}

func (w *model) everybody() (all []dmutex.NodeID) {
	for i := range w.n {
		all = append(all, dmutex.NodeID(i+1))
	}
	return all
}

// freeze replaces every time by "later" or "never", so that lives of equal text have equal
// machines.
func (l *life) freeze() {
	m := l.Machine
	m.in.InstalledAt, m.in.Quarrel, m.clock = 0, 0, 0
	m.fails = 1 // it pauses
	m.beginAt = later(m.beginAt, false)
	m.askAt, m.doubtAt = 2, later(m.doubtAt, false)
	if m.courtesy != 0 {
		m.courtesy = 2
	}
}

// intern returns the number of a life's state.
func (w *model) intern(l life) uint32 {
	b, _ := l.AppendText(w.scratch[:0])
	b = viewtest.AppendFence(b, " holds ", l.fence)
	b = canon.Flag(b, " late", l.courtesy == 0)
	for _, life := range l.met {
		b = strconv.AppendUint(append(b, ' '), life, 10)
	}
	w.scratch = b
	l.due = [kinds]bool{
		begins:  l.beginAt != due.Never && !l.ended(),
		decides: l.round != 0 && l.courtesy != 0 && l.late() && !l.ended(),
		asks:    l.phase == Doubting, despairs: l.phase == Doubting,
	}
	return w.lives.Number(b, l)
}

// send returns the number of a message.
func (w *model) send(from, to uint64, msg membership.Message) uint32 {
	i, j, text := int(msg.From)-1, int(msg.To)-1, viewtest.Message(&msg)
	return w.flights.Number(fmt.Append(nil, from, to, text), flight{
		Message: msg, from: i, to: j, fromLife: from, toLife: to, channel: uint32(i*w.n + j), text: text,
	})
}

// line returns a step as a line.
func (w *world) line(a action) string {
	switch {
	case a.do == deliver:
		return "deliver " + w.flight(w.wire[a.i]).text
	case a.do == meet:
		return fmt.Sprintf("%d meets %d#%d", a.i+1, a.j+1, w.number(a.j))
	case a.do == slander:
		return fmt.Sprintf("%d lies about %d, %d", w.n, a.i+1, a.j)
	case a.do == evict || a.do == cut:
		return fmt.Sprintf("%d %v %d", a.i+1, a.do, a.j+1)
	case a.do == tick && a.j == begins:
		return fmt.Sprintf("%d begins a round", a.i+1)
	case a.do == tick && a.j == asks:
		return fmt.Sprintf("%d asks in doubt", a.i+1)
	case a.do == tick && a.j == despairs:
		return fmt.Sprintf("%d believes what nobody contradicts", a.i+1)
	case a.do == tick:
		return fmt.Sprintf("%d decides without the others", a.i+1)
	default:
		return fmt.Sprintf("%d %v", a.i+1, a.do)
	}
}

// Tell appends a step, and what it has changed.
func (w *world) Tell(b []byte, a action, after *world) []byte {
	return w.changes(append(b, w.line(a)+"\n"...), after)
}

func (w *world) changes(b []byte, after *world) []byte {
	for i, p := range after.places {
		l, was, before := after.life(i), w.life(i), &w.places[i]
		switch {
		case p.life == 0 && before.life != 0 && p.departed && !before.departed:
			b = fmt.Appendf(b, "    %d#%d has left\n", i+1, was.Machine.life)
		case p.life == 0 || p.life == before.life:
		case before.life == 0 || was.phase != l.phase || was.in.View.Epoch != l.in.View.Epoch:
			b = fmt.Appendf(b, "    %d#%d is %v", i+1, l.Machine.life, l.phase)
			if l.in.View.Epoch > 0 {
				b = fmt.Appendf(b, " in %v", viewtest.View(l.in.View))
			}
			b = append(b, '\n')
		case was.fence != l.fence:
			b = fmt.Appendf(b, "    %d#%d holds", i+1, l.Machine.life)
			if l.fence == 0 {
				b = append(b, " nothing"...)
			}
			b = append(viewtest.AppendFence(b, " x by ", l.fence), '\n')
		}
	}
	return b
}
