package lease

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/canon"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/carryover"
	"github.com/dmutex/dmutex/internal/search"
)

// A world is a state of a group with a record: places where one life at a time
// runs, the messages between them, the store, one lock, and time. In a view that acts the
// lock is perfect, as in [world]. Time passes in units, for all at once; leases and waits
// are some units long. A pause may end at any time. A message is lost only with its
// receiver, and messages may overtake each other.
//
// The store answers at once, but some operations are slow. The answer of a slow load may
// come late. A slow swap takes effect at any later time, even after the life has given up
// waiting for it.
type world struct {
	*model
	places  []place
	locks   []viewtest.Lock // by epoch
	wire    []uint32        // messages on their way
	left    faults
	record  uint32 // in the store
	highest uint64 // epoch in which something was granted
}

// A leasePlace is the life at a place, and what is known of all lives there.
type place struct {
	life     uint32 // its state, 0 if there is none
	op       operation
	ghost    ghost // a swap that was given up and may still be done
	lives    uint8 // how many there were
	departed bool  // the last one has left
	sight    sight
	untold   bool // of a store that tells: it was wiped since this process has asked it last
}

// A sight is a question to the store about who lives. Each life has a life of the store,
// which ends when the life can hold nothing any more.
type sight struct {
	unclean uint64   // that was known when it was asked; 0 if it was not asked
	lives   [3]uint8 // that had begun then, by place; 0 if none had
}

// An operation is what the store does for a life.
type operation struct {
	kind   uint8  // 0 if it does nothing
	urgent bool   // it is not decided yet whether it is slow
	record uint32 // that a load has read
	forgot bool   // in place of that, it was told that the store has begun anew
}

const (
	openLoad = iota + 1
	openSwap
	doneSwap
	lateSwap
	openLive
)

// A ghost is a swap that may still be done.
type ghost struct{ read, want uint32 }

// A leaseModel is what the states of a group share, see [model].
type model struct {
	setup
	last uint64 // the highest epoch

	lives   viewtest.Catalog[leased]
	flights viewtest.Catalog[flight]
	views   viewtest.ViewCatalog
	records viewtest.Catalog[stored]
	steps   []step
	stepID  map[stepKey]uint32
	scratch []byte
}

// A stored is a record, and its text in the store.
type stored struct {
	Record
	text []byte
}

// A leaseSetup says who is there and what may go wrong.
type setup struct {
	n           int
	lease, wait int    // in units
	epochs      uint64 // beside the first
	fresh       bool   // there is no record at the beginning
	joining     bool   // there is one, with the first life alone: what the others ask to join may be slow
	proves      bool   // the store can prove that a process is dead
	unproved    int    // but not for this place, from 1
	homed       bool   // each place has an address
	swift       bool   // VIEW arrives at once
	tells       bool   // the store says that it was wiped
	faults      faults

	alter     func(m *Machine, do verb, input func() membership.Output) membership.Output // breaks a rule of the machine
	forget    bool                                                                        // breaks a rule of the driver: holds are not reported
	thaw      bool                                                                        // likewise: after the installation the old view still grants
	unchecked bool                                                                        // likewise: the end of the lease is ignored
	revive    bool                                                                        // likewise: what was lost is held again after a renewal
	blind     bool                                                                        // breaks the store: a swap does not compare
	former    bool                                                                        // likewise: lives that are no members are not seen
	late      bool                                                                        // likewise: a life of the store begins when its member acts
}

// leaseFaults are how often each may happen. Any member may be suspected at any time.
type faults struct {
	crashes uint8
	exits   uint8
	slow    uint8 // operations of the store
	alarms  uint8 // troubles in a view
	wipes   uint8 // of the record
	returns uint8 // lives that begin where the last one has left
}

func (s setup) name() string {
	name := fmt.Sprintf("%d, lease %d, wait %d, epochs %d, fresh %v, %+v", s.n, s.lease, s.wait, s.epochs, s.fresh, s.faults)
	if s.proves {
		name += fmt.Sprintf(", proves but for %d", s.unproved)
	}
	if s.joining {
		name += ", joining"
	}
	if s.homed {
		name += ", homed"
	}
	if s.swift {
		name += ", swift"
	}
	if s.tells {
		name += ", tells"
	}
	return name
}

// unit is the unit of time for the machines.
const unit = second

// laterEpoch is what the clocks show after the record was lost. Before that they are
// useless.
const laterEpoch = 100

// A leased is one state of a life and of what its driver keeps.
type leased struct {
	*Machine
	read  uint32 // the record that a swap compares with
	want  uint32 // the record that a swap writes
	fence uint64 // by which it holds, 0 if it does not
	lost  uint64 // of a driver that revives: the fence of the lost hold
	acted uint64 // the epoch in which the lock acted last since the life froze a view; 0 if it did not
	phase Phase
}

type flight struct {
	membership.Message
	from, to uint64 // lives
	text     string
}

type step struct {
	to       uint32
	sent     []uint32
	opened   Operation
	installs bool
	acts     bool
	holder   uint8 // by the reports, if it acts: its place, from 1
	lost     bool  // what it held
	wrong    error
}

// A leaseStepKey names an input. Equal inputs to equal lives have equal effects.
type stepKey struct {
	at   uint32
	do   verb
	arg  argument
	late bool // the record was lost before
}

// A leaseArg is what comes with an input. A field that its verb does not use is zero.
type argument struct {
	life   uint64        // of start
	flight uint32        // of deliver
	node   dmutex.NodeID // of suspect
	op     operation     // of answer: what was done
	sight  sight         // of see: who lives
	fence  uint64        // of acquire
}

// newLeaseWorld returns the state at the beginning.
func newWorld(s setup) *world {
	w := &world{
		model: &model{
			setup: s, last: ^uint64(0), lives: viewtest.NewCatalog[leased](), flights: viewtest.NewCatalog[flight](),
			views: viewtest.ViewCatalog{Catalog: viewtest.NewCatalog[membership.View]()}, records: viewtest.NewCatalog[stored](), stepID: map[stepKey]uint32{},
		},
		places: make([]place, s.n), left: faults{wipes: s.faults.wipes},
	}
	began := len(w.places)
	if w.joining {
		began = 1
	}
	for i := range began {
		must(w.Do(action{start, i, 0}))
		if !w.fresh {
			w.settle()
		}
	}
	w.last = max(w.stored().Epoch, 1) + w.epochs
	w.left = s.faults
	for i := began; i < len(w.places); i++ {
		must(w.Do(action{start, i, 0}))
	}
	return w
}

// settle takes fair steps until all is well and nothing is under way.
func (w *world) settle() {
	random := rand.New(rand.NewPCG(0, 0))
	for range 10_000 {
		if w.good() && len(w.wire) == 0 && !slices.ContainsFunc(w.places, func(p place) bool { return p.op.kind != 0 }) {
			return
		}
		list := slices.DeleteFunc(w.Steps(nil), func(a action) bool { return !w.fair(a) })
		must(w.Do(list[random.IntN(len(list))]))
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
	spare.places = spare.places[:0]
	spare.places = append(spare.places, w.places...)
	spare.locks = spare.locks[:0]
	spare.locks = append(spare.locks, w.locks...)
	spare.wire = spare.wire[:0]
	spare.wire = append(spare.wire, w.wire...)
	spare.left, spare.record, spare.highest = w.left, w.record, w.highest
	return spare
}

// AppendState appends the state.
func (w *world) AppendState(b []byte) []byte {
	little := binary.LittleEndian
	for _, p := range w.places {
		b = little.AppendUint64(b, uint64(p.life)|uint64(p.op.record)<<32)
		b = little.AppendUint64(b, uint64(p.ghost.read)|uint64(p.ghost.want)<<32)
		b = append(b, p.op.kind, viewtest.Bit(p.op.urgent)|viewtest.Bit(p.departed)<<1|viewtest.Bit(p.untold)<<2|viewtest.Bit(p.op.forgot)<<3, p.lives)
		if w.proves {
			b = append(append(b, byte(p.sight.unclean)), p.sight.lives[:]...)
		}
	}
	f := w.left
	b = append(b, f.crashes, f.exits, f.slow, f.alarms, f.wipes, f.returns)
	b = little.AppendUint64(little.AppendUint32(b, w.record), w.highest)
	return viewtest.AppendNumbered(viewtest.AppendLocks(b, w.locks), w.wire)
}

// number returns the number of a place's last life.
func (w *world) number(i int) uint64 { return uint64(i+1) + 16*uint64(w.places[i].lives) }

// placeOf returns where a life runs.
func placeOf(life uint64) int { return int(life%16) - 1 }

// alive reports whether a life runs.
func (w *world) alive(life uint64) bool {
	i := placeOf(life)
	return w.places[i].life != 0 && w.number(i) == life
}

// urgent returns a life whose operation has just been asked for, -1 if there is none.
func (w *world) urgent() int {
	return slices.IndexFunc(w.places, func(p place) bool { return p.op.urgent })
}

func (w *world) life(i int) *leased { return &w.lives.All[w.places[i].life] }

func (w *world) flight(id uint32) *flight { return &w.flights.All[id] }

// stored returns the record in the store.
func (w *world) stored() *stored { return &w.records.All[w.record] }

// holdable reports whether a life may hold something now.
func (w *model) holdable(l *leased) bool { return w.unchecked || l.LeaseEnd() > 0 }

// Steps appends what may happen.
func (w *world) Steps(list []action) []action {
	add := func(do verb, i, j int) { list = append(list, action{do, i, j}) }
	if i := w.urgent(); i >= 0 { // then there may be slow ones
		add(serve, i, 0)
		add(slow, i, 0)
		return list
	}
	for k, id := range w.wire {
		if w.arrives(id) {
			add(deliver, k, 0)
		}
	}
	for i := range w.places {
		me := &w.places[i]
		if me.ghost.want != 0 && me.ghost.read == w.record {
			add(land, i, 0)
		}
		if me.life == 0 {
			if me.lives != 0 && (!me.departed || w.left.returns > 0) {
				add(start, i, 0)
			}
			continue
		}
		l := w.life(i)
		if l.phase == Stopped {
			add(end, i, 0)
			continue
		}
		switch me.op.kind {
		case openLoad, doneSwap, lateSwap, openLive:
			add(answer, i, 0)
		case openSwap:
			add(swap, i, 0)
		}
		if me.op.kind != 0 {
			add(lose, i, 0)
		}
		if l.op == NoOperation && (l.stale || l.hintAt != due.Never || l.self != dmutex.None && (l.LeaseEnd() < l.cfg.Lease || l.read != w.record)) {
			add(load, i, 0) // otherwise it changes nothing
		}
		if l.in.IsComplete() && l.phase != Acting && l.cleared >= l.blind && l.LeaseEnd() > 0 {
			add(tick, i, 0)
		}
		if w.proves && l.cleared < l.record.Unclean {
			if me.sight.unclean == 0 {
				add(look, i, 0)
			} else {
				add(see, i, 0)
			}
		}
		for k := range l.peers {
			if l.op == NoOperation && !l.stale {
				add(suspect, i, int(l.peers[k].node))
			}
		}
		if lock := w.lock(i); lock != nil && l.fence == 0 {
			switch {
			case lock.Holder == uint8(i+1):
				add(settle, i, 0)
			case lock.Holder == 0 && !l.leaving && w.holdable(l) && w.free(l):
				add(acquire, i, 0)
			}
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
		if w.left.alarms > 0 && l.phase == Acting && l.troubleAt == due.Never {
			add(alarm, i, 0)
		}
	}
	if w.left.wipes > 0 && w.record != 0 {
		add(wipe, 0, 0)
	}
	add(pass, 0, 0)
	return list
}

// fair reports whether something happens sooner or later by itself.
func (w *world) fair(a action) bool {
	switch a.do {
	case acquire, crash, leave, alarm, slow, wipe:
		return false
	case start:
		return !w.places[a.i].departed
	case suspect:
		return !w.alive(w.life(a.i).peer(dmutex.NodeID(a.j)).life)
	default:
		return true
	}
}

// lock returns the lock that life i may use, nil if there is none.
func (w *world) lock(i int) *viewtest.Lock {
	l := w.life(i)
	if l.phase != Acting && !w.thaw {
		return nil
	}
	return w.views.Find(w.locks, &l.in.View, membership.Member{Node: l.self, Life: l.cfg.Life}, w.thaw)
}

// Do takes a step. While no operation may be slow, the store then answers at once.
func (w *world) Do(a action) error {
	for {
		err := w.do(a)
		if err != nil {
			return err
		}
		if i := w.urgent(); i >= 0 && w.left.slow == 0 {
			a = action{serve, i, 0}
			continue
		}
		w.tidy()
		k := slices.IndexFunc(w.wire, func(id uint32) bool { return w.swift && w.flight(id).Kind == membership.Decide && w.arrives(id) })
		if k < 0 {
			return w.exclusive()
		}
		a = action{deliver, k, 0}
	}
}

// arrives reports whether the receiver of a message has met the sender.
func (w *world) arrives(id uint32) bool {
	f := w.flight(id)
	l := w.life(placeOf(f.to))
	p := l.peer(f.From)
	return l.self == f.To && p != nil && p.here && p.life == f.from
}

func (w *world) do(a action) error {
	i := a.i
	if a.do == deliver {
		id := w.wire[i]
		w.wire = slices.Delete(w.wire, i, i+1)
		return w.input(placeOf(w.flight(id).to), deliver, argument{flight: id})
	}
	me := &w.places[i]
	switch a.do {
	case start:
		if me.departed {
			w.left.returns--
			me.departed = false
		}
		me.lives++
		me.untold = false
		return w.input(i, start, argument{life: w.number(i)})
	case crash:
		w.left.crashes--
		w.stop(i)
	case end:
		w.stop(i)
	case leave:
		w.left.exits--
		return w.input(i, leave, argument{})
	case alarm:
		w.left.alarms--
		return w.input(i, alarm, argument{})
	case wipe:
		w.left.wipes--
		w.record = 0
		for i := range w.places {
			if p := &w.places[i]; w.tells {
				p.untold, p.ghost = p.life != 0, ghost{}
			}
		}
	case suspect:
		return w.input(i, suspect, argument{node: dmutex.NodeID(a.j)})
	case load, tick:
		return w.input(i, a.do, argument{})
	case answer:
		op := me.op
		me.op = operation{}
		return w.input(i, answer, argument{op: op})
	case serve:
		if me.op.urgent = false; me.op.kind == openSwap {
			if err := w.do(action{swap, i, 0}); err != nil {
				return err
			}
		}
		return w.do(action{answer, i, 0})
	case look:
		me.sight.unclean = w.life(i).record.Unclean
		for j := range w.places {
			if w.lasts(j) {
				me.sight.lives[j] = w.places[j].lives
			}
		}
	case see:
		seen := me.sight
		me.sight = sight{}
		return w.input(i, see, argument{sight: seen})
	case slow:
		w.left.slow--
		me.op.urgent = false
	case lose:
		w.giveUp(i)
		return w.input(i, lose, argument{})
	case swap:
		l := w.life(i)
		if me.op = (operation{kind: lateSwap}); l.read == w.record && !me.untold || w.blind {
			me.op.kind = doneSwap
			return w.write(l.want)
		}
	case land:
		want := me.ghost.want
		me.ghost = ghost{}
		return w.write(want)
	case settle:
		w.lock(i).Holder = 0
	case release:
		w.unlock(i)
		return w.input(i, release, argument{})
	case acquire:
		lock := w.lock(i)
		lock.Holder = uint8(i + 1)
		epoch := w.views.All[lock.View].Epoch
		if epoch < w.highest {
			return viewtest.Wrongf("a fence falls: %c is granted in epoch %d, after a grant in epoch %d", 'a'+i, epoch, w.highest)
		}
		w.highest = epoch
		return w.input(i, acquire, argument{fence: epochs.First(epoch) + 1})
	case pass:
		return w.pass()
	}
	return nil
}

// lasts reports whether the store has begun a life for the life at a place.
func (w *world) lasts(i int) bool {
	return w.places[i].life != 0 && w.life(i).proof != "" && (!w.late || w.life(i).phase == Acting)
}

// lifeOfStore returns what the store calls a life.
func lifeOfStore(life uint64) string {
	return string(rune('a'+placeOf(life))) + strconv.FormatUint(life/16, 10)
}

// pass lets a unit of time pass. A lease ends at that moment, a wait may end later.
func (w *world) pass() error {
	for i, p := range w.places {
		if p.life != 0 && w.step(w.key(i, pass, argument{})).lost {
			w.unlock(i)
		}
	}
	for i, p := range w.places {
		if p.life != 0 {
			if err := w.input(i, pass, argument{}); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlock releases the lock of life i's view, if the life holds it.
func (w *world) unlock(i int) {
	if lock := w.lock(i); lock != nil && lock.Holder == uint8(i+1) {
		lock.Holder = 0
	}
}

// write puts a record into the store.
func (w *world) write(record uint32) error {
	w.record = record
	if epoch := w.stored().Epoch; epoch > w.last && (epoch < laterEpoch || epoch > laterEpoch+w.epochs) {
		return search.ErrOutside
	}
	return nil
}

// giveUp ends the operation of life i. A swap may still be done.
func (w *world) giveUp(i int) {
	me := &w.places[i]
	if me.op.kind == openSwap {
		me.ghost = ghost{w.life(i).read, w.life(i).want}
	}
	me.op = operation{}
}

// stop ends a process. Its messages may still arrive.
func (w *world) stop(i int) {
	w.giveUp(i)
	w.places[i].life = 0
}

// key names the step of life i by an input.
func (w *world) key(i int, do verb, arg argument) stepKey {
	key := stepKey{w.places[i].life, do, arg, w.left.wipes < w.faults.wipes}
	if do == start {
		key.at = 0
	}
	return key
}

// input gives life i an input.
func (w *world) input(i int, do verb, arg argument) error {
	t := w.step(w.key(i, do, arg))
	if t.wrong != nil {
		return t.wrong
	}
	me := &w.places[i]
	me.life = t.to
	l := w.life(i)
	if l.cfg.Life != w.number(i) { // it joins again
		me.lives++
	}
	switch t.opened {
	case Load:
		me.op = operation{kind: openLoad, urgent: true, record: w.record}
		if w.tells && (me.untold || w.record == 0 && w.left.wipes < w.faults.wipes) {
			me.op.forgot, me.untold = true, false
		}
	case Swap:
		me.op = operation{kind: openSwap, urgent: true}
	case Live:
		me.op = operation{kind: openLive, urgent: true}
	}
	for _, id := range t.sent {
		if w.alive(w.flight(id).to) && !slices.Contains(w.wire, id) {
			w.wire = append(w.wire, id)
		}
	}
	slices.Sort(w.wire)
	if l.phase == Left {
		me.departed = true
		w.stop(i)
		return nil
	}
	if t.installs {
		for j, p := range w.places {
			if other := w.life(j); p.life != 0 && other.in.View.Epoch == l.in.View.Epoch && !slices.Equal(other.in.View.Members, l.in.View.Members) {
				return viewtest.Wrongf("two views of one epoch: %v and %v", viewtest.View(l.in.View), viewtest.View(other.in.View))
			}
		}
	}
	if t.acts {
		return w.act(i, t.holder)
	}
	return nil
}

// act lets life i use the lock of its view. The members have reported the holder.
func (w *world) act(i int, holder uint8) error {
	l := w.life(i)
	lock := w.lock(i)
	if lock == nil || w.views.All[lock.View].Epoch != l.in.View.Epoch {
		w.locks = w.views.Lock(w.locks, l.in.View, holder)
	} else if lock.Reported != holder {
		return viewtest.Wrongf("%c has another report of the holder in %v", 'a'+i, viewtest.View(l.in.View))
	}
	return nil
}

// tidy drops what cannot matter any more: locks that nobody can use, messages that
// their receiver ignores, and swaps that are too late.
func (w *world) tidy() {
	w.locks = slices.DeleteFunc(w.locks, func(k viewtest.Lock) bool {
		used := w.thaw
		for i, p := range w.places {
			used = used || p.life != 0 && w.life(i).in.View.Epoch == w.views.All[k.View].Epoch
		}
		return !used
	})
	w.wire = slices.DeleteFunc(w.wire, func(id uint32) bool {
		f := w.flight(id)
		return !w.alive(f.to) || w.life(placeOf(f.to)).ignores(f)
	})
	for i := range w.places {
		p := &w.places[i]
		for j, q := range w.places {
			if p.sight.lives[j] != q.lives || q.life == 0 || w.former && w.stored().number(w.number(j)) == dmutex.None {
				p.sight.lives[j] = 0
			}
		}
		if p.life == 0 || w.life(i).cleared >= p.sight.unclean {
			p.sight = sight{}
		}
		if p.ghost.read != w.record {
			p.ghost = ghost{}
		}
		if p.op.kind == openSwap && w.life(i).read != w.record && !w.blind {
			p.op = operation{kind: lateSwap}
		}
	}
}

// ignores reports whether a message has no effect on a life, now or later.
func (l *leased) ignores(f *flight) bool {
	if l.ended() || l.self > f.To {
		return true
	}
	p := l.peer(f.From)
	if p == nil && l.self == f.To && f.From <= l.record.Highest {
		return true // the sender was a member, and never is one again
	}
	heard := p != nil && p.life == f.from && p.heard >= f.View.Epoch
	known := f.View.Epoch < l.in.View.Epoch || heard && (f.Kind != membership.Report || !l.in.Lacks(f.From))
	return known && l.cleared >= f.Cleared && (f.Kind == membership.Cleared || f.View.Epoch <= l.record.Epoch)
}

// exclusive checks that one life at most holds the lock.
func (w *world) exclusive() error {
	first := -1
	for i, p := range w.places {
		if p.life == 0 || w.life(i).fence == 0 {
			continue
		}
		if first >= 0 {
			return viewtest.Wrongf("two holders: %c and %c", 'a'+first, 'a'+i)
		}
		first = i
	}
	return nil
}

// good reports whether all is well: the lives that are there are the members, and act.
func (w *world) good() bool {
	r := w.stored()
	n := 0
	for i, p := range w.places {
		if p.life == 0 {
			if p.lives != 0 && !p.departed {
				return false
			}
			continue
		}
		l := w.life(i)
		if n++; l.phase != Acting || l.leaving || l.in.View.Epoch != r.Epoch || l.LeaseEnd() <= 0 {
			return false
		}
	}
	return n == 0 || len(r.Members) == n
}

// stuck names the lives that wait forever.
func (w *world) stuck() error {
	var waiting []string
	for i, p := range w.places {
		if l := w.life(i); p.life != 0 {
			waiting = append(waiting, fmt.Sprintf("%c is %v in %v", 'a'+i, l.phase, viewtest.View(l.in.View)))
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
	var l leased
	if key.do == start {
		cfg := Config{Life: key.arg.life, Lease: int64(w.lease) * unit, Proves: w.proves}
		if w.homed {
			cfg.Address = strconv.Itoa(placeOf(cfg.Life))
		}
		m, err := New(cfg)
		if err != nil {
			panic(err)
		}
		m.drain, m.wait = int64(w.wait)*unit, int64(w.wait)*unit
		l = leased{Machine: m}
	} else {
		l = w.lives.All[key.at]
		l.Machine = l.Clone()
	}
	if key.late {
		l.Clock(laterEpoch)
	}
	input := func() membership.Output { return l.Tick(0) }
	var refused error
	switch key.do {
	case start, tick:
	case deliver:
		input = func() membership.Output {
			out, err := l.Handle(0, w.flights.All[key.arg.flight].Message)
			refused = err
			return out
		}
	case suspect:
		input = func() membership.Output {
			p := l.peer(key.arg.node)
			p.here, p.awayAt = false, -1<<60
			out := l.Tick(0)
			p.here = true // only the suspicion matters
			return out
		}
	case load:
		l.loadAt, l.renewAt, l.hintAt = 0, 0, min(l.hintAt, 0)
	case answer:
		switch key.arg.op.kind {
		case openLoad:
			l.read = key.arg.op.record
			if key.arg.op.forgot {
				input = func() membership.Output { return l.Done(0, nil, ErrForgotten) }
				break
			}
			input = func() membership.Output { return l.Done(0, w.records.All[l.read].text, nil) }
		case doneSwap:
			l.read = l.want
			input = func() membership.Output { return l.Done(0, nil, nil) }
		case lateSwap:
			input = func() membership.Output { return l.Done(0, nil, ErrConflict) }
		case openLive:
			input = func() membership.Output {
				if placeOf(l.cfg.Life) == w.unproved-1 {
					return l.Done(0, nil, nil)
				}
				return l.Done(0, []byte(lifeOfStore(l.cfg.Life)), nil)
			}
		}
	case see:
		input = func() membership.Output {
			var names []string
			for i, life := range key.arg.sight.lives {
				if life != 0 {
					names = append(names, lifeOfStore(uint64(i+1)+16*uint64(life)))
				}
			}
			return l.Living(0, key.arg.sight.unclean, names)
		}
	case lose:
		input = func() membership.Output { return l.Done(0, nil, errUnknown) }
	case pass:
		l.endsAt(l.term.Expiry() - unit)
		l.since, l.dueSince, l.sentAt = l.since-unit, l.dueSince-unit, l.sentAt-unit
		if l.fence != 0 && !w.holdable(&l) {
			t.lost = true
			if l.fence = 0; w.revive {
				l.lost = w.lives.All[key.at].fence
			}
		}
	case release:
		l.fence = 0
	case acquire:
		l.fence = key.arg.fence
	case leave:
		input = func() membership.Output { return l.Leave(0) }
	case alarm:
		input = func() membership.Output {
			out := l.Trouble(0, l.in.View.Epoch)
			l.troubleAt = 0
			return out.And(l.Tick(0))
		}
	}
	broken := w.alter
	if broken == nil {
		broken = func(_ *Machine, _ verb, input func() membership.Output) membership.Output { return input() }
	}
	var messages []membership.Message
	reports := false // it is due
	for do := key.do; input != nil; do = report {
		out := broken(l.Machine, do, input)
		messages = append(messages, out.Messages...)
		for _, e := range out.Events {
			reports = w.happens(&l, &t, e, reports)
		}
		if l.lost != 0 && w.holdable(&l) {
			l.fence, l.lost = l.lost, 0
		}
		if input = nil; l.Spent() {
			input = func() membership.Output { return l.Rejoin(0, l.cfg.Life+16) }
		} else if p := l.unmet(); p != nil {
			input = func() membership.Output { return l.Met(0, p.node, p.life) }
		} else if reports {
			word := w.word(&l)
			reports = false
			input = func() membership.Output { return l.Report(0, w.holds(&l), word) }
		}
	}
	l.phase = l.Phase()
	if refused != nil {
		return step{wrong: viewtest.Wrongf("refused: %v", refused)}
	}
	for _, o := range messages {
		if life := w.lifeOf(&l, o.To); life != 0 {
			t.sent = append(t.sent, w.send(l.cfg.Life, life, o))
		}
	}
	l.freeze()
	t.to = w.intern(l)
	return t
}

// happens does what an event says. It returns whether a report is due then.
func (w *model) happens(l *leased, t *step, e membership.Event, reports bool) bool {
	switch e := e.(type) {
	case membership.Installed:
		t.installs = true
		return true
	case Excluded:
		l.fence, l.acted = 0, 0
		return false
	case Ended:
		if e.Err != nil {
			l.fence, l.acted = 0, 0
		}
		return false
	case membership.Acts:
		t.acts, l.acted = true, e.View.Epoch
		if holders := viewtest.Carried(e.Holdings...); len(holders) > 0 {
			t.holder = uint8(placeOf(e.View.Life(holders[0].Node)) + 1)
		}
	case Ask:
		if t.opened = e.Op; e.Op == Swap {
			l.want = w.number(e.Value)
		}
	}
	return reports
}

// unmet returns a member that was not met.
func (l *leased) unmet() *peer {
	for i := range l.peers {
		if p := &l.peers[i]; !p.here {
			return p
		}
	}
	return nil
}

// lifeOf returns the life of a peer.
func (w *model) lifeOf(l *leased, node dmutex.NodeID) uint64 {
	if p := l.peer(node); p != nil {
		return p.life
	}
	return 0
}

// word returns what a life knows of the lock of the view that it has frozen, and forgets
// it. A life that does not hold the lock knows that another may get it.
func (w *model) word(l *leased) *membership.Word {
	if l.acted == 0 {
		return nil
	}
	word := &membership.Word{Node: l.self, Epoch: l.acted, Members: l.in.Complete.Nodes()}
	if l.acted = 0; l.fence != 0 {
		word.Differs = []membership.Differ{{Lock: "x", Bits: math.MaxUint64}}
	}
	return word
}

// free reports whether no former member may hold the lock.
func (w *model) free(l *leased) bool {
	return len(carryover.About(&l.past).Holders("x", false, l.cleared, func(*membership.Word) uint64 { return 0 })) == 0
}

func (w *model) holds(l *leased) []membership.Hold {
	if l.fence == 0 || w.forget {
		return nil
	}
	return []membership.Hold{{Lock: "x", Fence: l.fence}}
}

// freeze replaces the ends of pauses by constants, and keeps of other state only what
// still matters, so that lives of equal text are equal.
func (l *leased) freeze() {
	m := l.Machine
	m.cfg.Clock, m.now, m.joinAt, m.joinedAt, m.in.InstalledAt = 0, 0, 0, 0, 0
	m.vain, m.prompted = 0, false
	m.in.Trip, m.fails, m.losses, m.exclusions, m.flaps, m.in.Quarrel = 0, 0, 0, 0, 0, 0
	m.loadAt, m.renewAt = 2, 2
	if m.hintAt != due.Never {
		m.hintAt = 2
	}
	if m.troubleAt != due.Never {
		m.troubleAt = 0
	}
	for i := range m.peers {
		p := &m.peers[i]
		if p.since, p.awayAt = 0, 0; p.heard < m.in.View.Epoch {
			p.heard = 0
		}
	}
	for i := range m.in.Reports {
		if r := &m.in.Reports[i]; m.in.IsComplete() {
			r.Holds, r.Past = nil, nil // they were sent
		}
	}
	if m.phase == Acting { // they are in the lock
		m.in.Holdings = nil
	}
	m.settlePast()
	if m.endsAt(max(m.term.Expiry(), 0)); m.self == dmutex.None {
		m.term = leases.Term{Length: m.cfg.Lease}
	}
	if m.since = max(m.since, -m.drain); m.cleared >= m.record.Unclean {
		m.since = 0
	}
	if m.dueSince = max(m.dueSince, -m.drain); m.due <= m.cleared {
		m.due, m.dueSince = m.record.Unclean, m.since
	}
	if m.sentAt = max(m.sentAt, -m.cfg.Lease); m.op == NoOperation {
		m.sentAt = 0
	}
	if m.op != Swap {
		m.next = Record{}
	}
	m.gone = slices.Clone(m.gone)
	for i := range m.gone { // it matters only whether it is cleared
		if m.gone[i].unclean <= m.cleared {
			m.gone[i].unclean = 0
		}
	}
	slices.SortFunc(m.gone, func(a, b gone) int { return strings.Compare(a.proof, b.proof) })
}

// settlePast keeps of the past what still matters.
func (m *Machine) settlePast() {
	over := func(f membership.Former) bool { return f.Epoch <= m.cleared }
	m.past.Former = slices.DeleteFunc(slices.Clone(m.past.Former), over)
	if len(m.past.Former) == 0 {
		m.past = membership.Past{}
	}
	if m.blind <= m.cleared {
		m.blind = 0
	}
	if m.earlier != nil {
		p := &membership.Past{Former: slices.DeleteFunc(slices.Clone(m.earlier.Former), over)}
		if len(p.Former) > 0 {
			p.Words = m.earlier.Words
		}
		m.earlier = p
	}
	since := uint64(0)
	if m.earlier != nil {
		since = m.own.Epoch
	}
	m.met = slices.DeleteFunc(m.met, func(a acquaintance) bool { return a.gone != 0 && a.gone <= m.cleared })
	for i := range m.met {
		if a := &m.met[i]; a.told <= since {
			a.told = 0
		} else {
			a.told = m.in.View.Epoch
		}
	}
	slices.SortFunc(m.met, func(a, b acquaintance) int { return cmp.Compare(a.node, b.node) })
}

// intern returns the number of a life's state.
func (w *model) intern(l leased) uint32 {
	if l.op != Swap {
		l.want = 0
	}
	b, _ := l.AppendText(w.scratch[:0])
	b = canon.Number(b, " read=", uint64(l.read))
	b = canon.Number(b, " holds ", l.fence)
	b = canon.Number(b, " lost ", l.lost)
	b = canon.Number(b, " in ", l.acted)
	for _, at := range []int64{l.term.Expiry(), l.since, l.dueSince, l.sentAt} {
		b = strconv.AppendInt(append(b, ' '), at/unit, 10)
	}
	w.scratch = b
	return w.lives.Number(b, l)
}

// number returns the number of a record.
func (w *model) number(text []byte) uint32 {
	r := stored{text: slices.Clone(text)}
	must(r.UnmarshalText(text))
	return w.records.Number(text, r)
}

// send returns the number of a message.
func (w *model) send(from, to uint64, msg membership.Message) uint32 {
	text := viewtest.Message(&msg)
	return w.flights.Number(fmt.Append(nil, from, to, text), flight{msg, from, to, text})
}

// line returns a step as a line, "" if it is not told. A life is named by its place, a, b
// and so on, and its number among the lives there.
func (w *world) line(a action, after *world) string {
	if a.do == deliver {
		f := w.flight(w.wire[a.i])
		return fmt.Sprintf("deliver %c to %c: %s", 'a'+placeOf(f.from), 'a'+placeOf(f.to), f.text)
	}
	who := w.name(a.i)
	switch op := w.places[a.i].op; a.do {
	case answer:
		switch op.kind {
		case openLive:
			return who + " has begun a life of the store"
		case openLoad:
			return who + " has read " + w.tellRecord(op.record)
		case doneSwap:
			return who + " hears that its swap was done"
		default:
			return who + " hears that its swap was too late"
		}
	case lose:
		return who + " waits no longer for the store"
	case swap, land:
		return who + " has its swap done"
	case wipe:
		return "the record is lost"
	case look:
		return who + " asks who lives"
	case see:
		living := ""
		for i, life := range w.places[a.i].sight.lives {
			if life != 0 {
				living += fmt.Sprintf(" %c%d", 'a'+i, life)
			}
		}
		return who + " hears who lives:" + living
	case serve:
		return ""
	case slow:
		return "the store is slow to answer " + who
	case suspect:
		return fmt.Sprintf("%s suspects %c", who, 'a'+placeOf(w.life(a.i).peer(dmutex.NodeID(a.j)).life))
	case load:
		return who + " loads the record"
	case tick:
		return who + " has waited long enough"
	case pass:
		return "time passes"
	case start:
		return after.name(a.i) + " starts"
	default:
		return fmt.Sprintf("%s %v", who, a.do)
	}
}

func (w *world) name(i int) string { return fmt.Sprintf("%c%d", 'a'+i, w.places[i].lives) }

// Tell appends a step, and what has changed with it.
func (w *world) Tell(b []byte, a action, after *world) []byte {
	if line := w.line(a, after); line != "" {
		b = append(append(b, line...), '\n')
	}
	if r := after.record; r != w.record && r != 0 {
		b = fmt.Appendf(b, "    the record is %v\n", w.tellRecord(r))
	}
	for i, p := range after.places {
		if before := w.places[i].life; before == 0 || p.life == 0 || p.life == before {
			continue
		}
		l, was := after.life(i), w.life(i)
		if was.phase != l.phase || was.in.View.Epoch != l.in.View.Epoch {
			b = fmt.Appendf(b, "    %s is %v", after.name(i), l.phase)
			if l.in.View.Epoch > 0 {
				b = fmt.Appendf(b, " in %v", viewtest.View(l.in.View))
			}
			b = append(b, '\n')
		}
		if was.fence != 0 && l.fence == 0 && a.do != release {
			b = fmt.Appendf(b, "    %s has lost what it held\n", after.name(i))
		}
	}
	return b
}

func (w *model) tellRecord(id uint32) string {
	if id == 0 {
		return "gone"
	}
	return string(appendRecord(nil, "", &w.records.All[id].Record))
}
