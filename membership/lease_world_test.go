package membership

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

// A leaseWorld is a group in the lease mode as a transition system: places, in each of
// which one life at a time runs, the messages between them, the store, one lock, and
// time. In a view that acts the lock is perfect, as in [world]. Time passes in units,
// for all at once; leases and waits are some units long. Whatever a life does when a
// pause ends may happen at any time. A message is lost only with its receiver, and
// messages may overtake each other.
//
// The store answers at once, but some operations are slow. The answer of a slow load may
// come late. A slow swap takes effect any time later, also after its answer, which may be
// late, too, was given up.
//
// A state is a short list of numbers:
//
//	the state of each place's life
//	the operation of each life, and its outcome, if the store has one already
//	for each place a swap that was given up and may still be done
//	how many lives each place had, and which have left
//	the record in the store
//	the faults that may still happen
//	the highest epoch in which something was granted
//	how many locks there are, and for each its view and its holder
//	the messages on their way
type leaseWorld struct {
	leaseSetup
	first []uint32
	last  uint64 // the highest epoch

	lives   []leased
	flights []leaseFlight
	views   []View
	records []Record // the first is none
	texts   [][]byte
	ghosts  []ghost
	steps   []leaseStep

	lifeID, flightID, viewID, recordID map[string]uint32
	ghostID                            map[ghost]uint32
	stepID                             map[leaseStepKey]uint32

	next    []uint32
	actions []action
	scratch []byte
}

// A leaseSetup says who is there and what may go wrong.
type leaseSetup struct {
	n           int
	lease, wait int    // in units
	epochs      uint64 // beside the first
	fresh       bool   // there is no record at the beginning
	faults      leaseFaults

	alter     func(m *LeaseMachine, do verb, input func() []Message) []Message // breaks a rule of the machine
	forget    bool                                                             // breaks a rule of the driver: what is held is not reported
	thaw      bool                                                             // likewise: after the installation the old view still grants
	unchecked bool                                                             // likewise: the end of the lease is ignored
	revive    bool                                                             // likewise: what was lost is held again after a renewal
	blind     bool                                                             // breaks the store: a swap does not compare
}

// leaseFaults are how often each may happen. Any member may be suspected at any time.
type leaseFaults struct {
	crashes int
	exits   int
	slow    int // operations of the store
	alarms  int // troubles in a view
	wipes   int // of the record
	returns int // lives that begin where the last one has left
}

func (s leaseSetup) name() string {
	return fmt.Sprintf("%d, lease %d, wait %d, epochs %d, fresh %v, %+v", s.n, s.lease, s.wait, s.epochs, s.fresh, s.faults)
}

// unit is what the unit of time is to the machines.
const unit = second

// laterEpoch is at what the clocks stand when the record was lost. Before that they are
// useless.
const laterEpoch = 100

// A leased is one state of a life and of what its driver keeps.
type leased struct {
	*LeaseMachine
	read  uint32 // the record that a swap compares with
	want  uint32 // the record that a swap writes
	fence uint64 // by which it holds, 0 if it does not
	lost  uint64 // of a driver that revives: by which it held
	phase Phase
}

type leaseFlight struct {
	Message
	from, to uint64 // lives
	text     string
}

// A ghost is a swap that may still be done.
type ghost struct{ read, want uint32 }

type leaseStep struct {
	to     uint32
	sent   []uint32
	opened Operation
	holder uint32 // by the reports: its place, from 1
	lost   bool   // what it held
	wrong  string
}

type leaseStepKey struct {
	at   uint32
	do   verb
	arg  uint64
	late bool // the record was lost before
}

// More verbs.
const (
	load    = iota + cut + 1 // the record is loaded again
	answer                   // the store answers
	lose                     // the answer is given up
	swap                     // the swap takes effect
	land                     // it does after it was given up
	serve                    // the store does it and answers at once
	slow                     // it does not
	suspect                  // one life gives another up
	settle                   // what was released between the report and the view's first act is released in the view
	pass                     // a unit of time passes
	wipe                     // the record is gone
)

// What the store has answered, beside the record that a load has read.
const (
	openLoad = iota + 1
	openSwap
	doneSwap
	lateSwap

	urgent = 8 // it has not been said yet whether it is slow
)

func newLeaseWorld(s leaseSetup) *leaseWorld {
	w := &leaseWorld{
		leaseSetup: s, last: ^uint64(0),
		lifeID: map[string]uint32{}, flightID: map[string]uint32{}, viewID: map[string]uint32{}, recordID: map[string]uint32{"": 0},
		ghostID: map[ghost]uint32{}, stepID: map[leaseStepKey]uint32{},
		lives: make([]leased, 1), records: make([]Record, 1), texts: make([][]byte, 1), ghosts: make([]ghost, 1),
	}
	w.first = make([]uint32, w.head())
	w.first[w.store()+1] = uint32(s.faults.wipes << leaseFaultAt[wipe])
	for i := range w.n {
		w.first = w.must(w.first, action{start, i, 0})
		if !w.fresh {
			w.settle()
		}
	}
	if epoch := w.records[w.first[w.store()]].Epoch; epoch > 0 {
		w.last = epoch + w.epochs
	} else {
		w.last = 1 + w.epochs
	}
	f := s.faults
	w.first[w.store()+1] = uint32(f.crashes | f.exits<<5 | f.slow<<10 | f.alarms<<15 | f.wipes<<20 | f.returns<<25)
	return w
}

func (w *leaseWorld) must(s []uint32, a action) []uint32 {
	t, wrong := w.apply(s, a)
	if wrong != "" {
		panic(wrong)
	}
	return slices.Clone(t)
}

// settle lets happen what happens by itself, until all is well and nothing is under way.
func (w *leaseWorld) settle() {
	random := rand.New(rand.NewPCG(0, 0))
	for range 10_000 {
		if w.good(w.first) && len(w.first) == w.wire(w.first) && slices.Max(w.first[w.n:2*w.n]) == 0 {
			return
		}
		list := slices.DeleteFunc(slices.Clone(w.possible(w.first)), func(a action) bool { return !w.fair(w.first, a) })
		w.first = w.must(w.first, list[random.IntN(len(list))])
	}
	panic("it never comes to rest")
}

func (w *leaseWorld) store() int { return 4 * w.n }
func (w *leaseWorld) head() int  { return 4*w.n + 4 }

// wire returns where the messages begin in a state.
func (w *leaseWorld) wire(s []uint32) int { return w.head() + 2*int(s[w.head()-1]) }

var leaseFaultAt = map[verb]int{crash: 0, leave: 5, slow: 10, alarm: 15, wipe: 20, start: 25}

func (w *leaseWorld) left(s []uint32, v verb) uint32 { return s[w.store()+1] >> leaseFaultAt[v] & 31 }
func (w *leaseWorld) take(s []uint32, v verb)        { s[w.store()+1] -= 1 << leaseFaultAt[v] }

// number returns the number of a place's last life.
func (w *leaseWorld) number(s []uint32, i int) uint64 {
	return uint64(i+1) + 16*uint64(s[3*w.n+i]&0xff)
}

// placeOf returns where a life runs.
func placeOf(life uint64) int { return int(life%16) - 1 }

// alive reports whether a life runs.
func (w *leaseWorld) alive(s []uint32, life uint64) bool {
	i := placeOf(life)
	return s[i] != 0 && w.number(s, i) == life
}

// urgent returns a life whose operation has just been asked for, -1 if there is none.
func (w *leaseWorld) urgent(s []uint32) int {
	return slices.IndexFunc(s[w.n:2*w.n], func(word uint32) bool { return word&urgent != 0 })
}

func (w *leaseWorld) life(s []uint32, i int) *leased { return &w.lives[s[i]] }

// holdable reports whether a life may hold something now.
func (w *leaseWorld) holdable(l *leased) bool { return w.unchecked || l.LeaseEnd() > 0 }

// possible lists what may happen in a state. The list is overwritten by the next call.
func (w *leaseWorld) possible(s []uint32) []action {
	list := w.actions[:0]
	add := func(do verb, i, j int) { list = append(list, action{do, i, j}) }
	if i := w.urgent(s); i >= 0 { // then there may be slow ones
		add(serve, i, 0)
		add(slow, i, 0)
		w.actions = list
		return list
	}
	for k := w.wire(s); k < len(s); k++ {
		f := &w.flights[s[k]]
		if l := w.life(s, placeOf(f.to)); l.self == f.To {
			if p := l.peer(f.From); p != nil && p.here && p.life == f.from {
				add(deliver, k, 0)
			}
		}
	}
	for i := range w.n {
		if ghost := w.ghosts[s[2*w.n+i]]; s[2*w.n+i] != 0 && ghost.read == s[w.store()] {
			add(land, i, 0)
		}
		if s[i] == 0 {
			if s[3*w.n+i] != 0 && (s[3*w.n+i]&departed == 0 || w.left(s, start) > 0) {
				add(start, i, 0)
			}
			continue
		}
		l := w.life(s, i)
		if l.phase == Stopped {
			add(end, i, 0)
			continue
		}
		switch s[w.n+i] & 7 {
		case openLoad, doneSwap, lateSwap:
			add(answer, i, 0)
		case openSwap:
			add(swap, i, 0)
		}
		if s[w.n+i] != 0 {
			add(lose, i, 0)
		}
		if l.op == NoOperation && (l.stale || l.hintAt != never || l.self != dmutex.None && (l.leaseFrom < 0 || l.read != s[w.store()])) {
			add(load, i, 0) // otherwise it changes nothing
		}
		if l.complete && !l.acting && l.cleared >= l.unclean && l.LeaseEnd() > 0 {
			add(tick, i, 0)
		}
		for k := range l.peers {
			if l.op == NoOperation && !l.stale {
				add(suspect, i, int(l.peers[k].node))
			}
		}
		if lock := w.lock(s, i); lock > 0 && l.fence == 0 {
			switch holder := s[lock+1] & 0xff; {
			case holder == uint32(i+1):
				add(settle, i, 0)
			case holder == 0 && !l.leaving && w.holdable(l):
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
		if w.left(s, alarm) > 0 && l.phase == Acting && l.troubleAt == never {
			add(alarm, i, 0)
		}
	}
	if w.left(s, wipe) > 0 && s[w.store()] != 0 {
		add(wipe, 0, 0)
	}
	add(pass, 0, 0)
	w.actions = list
	return list
}

// fair reports whether something happens sooner or later by itself.
func (w *leaseWorld) fair(s []uint32, a action) bool {
	switch a.do {
	case acquire, crash, leave, alarm, slow, wipe:
		return false
	case start:
		return s[3*w.n+a.i]&departed == 0
	case suspect:
		p := w.life(s, a.i).peer(dmutex.NodeID(a.j))
		return !w.alive(s, p.life)
	default:
		return true
	}
}

// lock returns where the lock stands that life i may use, 0 if there is none.
func (w *leaseWorld) lock(s []uint32, i int) int {
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
		if w.thaw && v.Has(l.self, l.cfg.Life) {
			at = k
		}
	}
	return at
}

// apply returns the state that an action leads to, and what is wrong with it. It is
// overwritten by the next call, which must not be given it.
func (w *leaseWorld) apply(from []uint32, a action) ([]uint32, string) {
	s, wrong := w.leadsTo(append(w.next[:0], from...), a)
	for wrong == "" && w.left(s, slow) == 0 {
		i := w.urgent(s)
		if i < 0 {
			break
		}
		s, wrong = w.leadsTo(s, action{serve, i, 0})
	}
	if wrong == "" {
		s = w.tidy(s)
		wrong = w.exclusive(s)
	}
	w.next = s
	return s, wrong
}

func (w *leaseWorld) leadsTo(s []uint32, a action) ([]uint32, string) {
	switch i := a.i; a.do {
	case start:
		if s[3*w.n+i]&departed != 0 {
			w.take(s, start)
			s[3*w.n+i] &^= departed
		}
		s[3*w.n+i]++
		return w.move(s, i, leaseStepKey{do: start, arg: w.number(s, i)})
	case crash, end:
		if a.do == crash {
			w.take(s, crash)
		}
		return w.stop(s, i), ""
	case leave, alarm:
		w.take(s, a.do)
		return w.move(s, i, leaseStepKey{at: s[i], do: a.do})
	case wipe:
		w.take(s, wipe)
		s[w.store()] = 0
		return s, ""
	case load, suspect, tick:
		return w.move(s, i, leaseStepKey{at: s[i], do: a.do, arg: uint64(a.j)})
	case answer:
		word := s[w.n+i]
		s[w.n+i] = 0
		return w.move(s, i, leaseStepKey{at: s[i], do: answer, arg: uint64(word)})
	case serve:
		word := s[w.n+i] &^ urgent
		s[w.n+i] = word
		if word&7 == openSwap {
			var wrong string
			if s, wrong = w.leadsTo(s, action{swap, i, 0}); wrong != "" {
				return s, wrong
			}
		}
		return w.leadsTo(s, action{answer, i, 0})
	case slow:
		w.take(s, slow)
		s[w.n+i] &^= urgent
		return s, ""
	case lose:
		if s[w.n+i]&7 == openSwap {
			s[2*w.n+i] = w.ghost(ghost{w.life(s, i).read, w.life(s, i).want})
		}
		s[w.n+i] = 0
		return w.move(s, i, leaseStepKey{at: s[i], do: lose})
	case swap:
		l := w.life(s, i)
		if s[w.n+i] = lateSwap; l.read == s[w.store()] || w.blind {
			s[w.n+i] = doneSwap
			return w.write(s, l.want)
		}
		return s, ""
	case land:
		want := w.ghosts[s[2*w.n+i]].want
		s[2*w.n+i] = 0
		return w.write(s, want)
	case deliver:
		id := s[i]
		s = slices.Delete(s, i, i+1)
		to := placeOf(w.flights[id].to)
		return w.move(s, to, leaseStepKey{at: s[to], do: deliver, arg: uint64(id)})
	case settle: // it was released between the report and the view's first act
		s[w.lock(s, i)+1] &^= 0xff
		return s, ""
	case release:
		s = w.unlock(s, i)
		return w.move(s, i, leaseStepKey{at: s[i], do: release})
	case acquire:
		lock := w.lock(s, i)
		s[lock+1] |= uint32(i + 1)
		epoch := w.views[s[lock]].Epoch
		if highest := &s[w.store()+2]; uint32(epoch) < *highest {
			return s, fmt.Sprintf("a fence falls: %c is granted in epoch %d, after a grant in epoch %d", 'a'+i, epoch, *highest)
		} else {
			*highest = uint32(epoch)
		}
		return w.move(s, i, leaseStepKey{at: s[i], do: acquire, arg: FirstFence(epoch) + 1})
	case pass:
		for i := range w.n { // a lease ends at the moment, a wait may end later
			if s[i] != 0 && w.step(leaseStepKey{at: s[i], do: pass}).lost {
				s = w.unlock(s, i)
			}
		}
		for i := range w.n {
			if s[i] != 0 {
				var wrong string
				if s, wrong = w.move(s, i, leaseStepKey{at: s[i], do: pass}); wrong != "" {
					return s, wrong
				}
			}
		}
		return s, ""
	}
	panic("what is that?")
}

// unlock releases the lock of life i's view, if it holds that.
func (w *leaseWorld) unlock(s []uint32, i int) []uint32 {
	if lock := w.lock(s, i); lock > 0 && s[lock+1]&0xff == uint32(i+1) {
		s[lock+1] &^= 0xff
	}
	return s
}

// write puts a record into the store.
func (w *leaseWorld) write(s []uint32, record uint32) ([]uint32, string) {
	s[w.store()] = record
	if epoch := w.records[record].Epoch; epoch > w.last && (epoch < laterEpoch || epoch > laterEpoch+w.epochs) {
		return s, outside
	}
	return s, ""
}

// stop ends a process. What it has sent may still arrive, and its swap may still be
// done.
func (w *leaseWorld) stop(s []uint32, i int) []uint32 {
	if s[w.n+i]&7 == openSwap {
		s[2*w.n+i] = w.ghost(ghost{w.life(s, i).read, w.life(s, i).want})
	}
	s[i], s[w.n+i] = 0, 0
	return s
}

// move puts life i into the state to which a step leads.
func (w *leaseWorld) move(s []uint32, i int, key leaseStepKey) ([]uint32, string) {
	key.late = w.left(s, wipe) < uint32(w.faults.wipes)
	t := w.step(key)
	if t.wrong != "" {
		return s, t.wrong
	}
	before := leased{LeaseMachine: &LeaseMachine{}}
	if s[i] != 0 {
		before = *w.life(s, i)
	}
	s[i] = t.to
	l := w.life(s, i)
	if l.cfg.Life != w.number(s, i) { // it joins again
		s[3*w.n+i]++
	}
	switch t.opened {
	case Load:
		s[w.n+i] = openLoad | urgent | s[w.store()]<<4
	case Swap:
		s[w.n+i] = openSwap | urgent
	}
	for _, id := range t.sent {
		if w.alive(s, w.flights[id].to) && !slices.Contains(s[w.wire(s):], id) {
			s = append(s, id)
		}
	}
	slices.Sort(s[w.wire(s):])
	if l.phase == Left {
		s[3*w.n+i] |= departed
		return w.stop(s, i), ""
	}
	if l.view.Epoch != before.view.Epoch && l.view.Epoch > 0 {
		for j := range w.n {
			if s[j] != 0 && w.life(s, j).view.Epoch == l.view.Epoch && !slices.Equal(w.life(s, j).view.Members, l.view.Members) {
				return s, fmt.Sprintf("two views of one epoch: %v and %v", l.view, w.life(s, j).view)
			}
		}
	}
	if l.phase == Acting && (before.phase != Acting || before.view.Epoch < l.view.Epoch) {
		return w.act(s, i, t.holder)
	}
	return s, ""
}

// act lets life i use the lock of its view, in which its members have reported the
// holder.
func (w *leaseWorld) act(s []uint32, i int, holder uint32) ([]uint32, string) {
	l := w.life(s, i)
	if k := w.lock(s, i); k > 0 && w.views[s[k]].Epoch == l.view.Epoch {
		if s[k+1]>>8 != holder {
			return s, fmt.Sprintf("%c has another report of the holder in %v", 'a'+i, l.view)
		}
		return s, ""
	}
	k := w.head()
	for k < w.wire(s) && w.views[s[k]].Epoch < l.view.Epoch {
		k += 2
	}
	w.scratch = appendView(w.scratch[:0], "", l.view)
	id, ok := w.viewID[string(w.scratch)]
	if !ok {
		id = uint32(len(w.views))
		w.views = append(w.views, l.view)
		w.viewID[string(w.scratch)] = id
	}
	s[w.head()-1]++
	return slices.Insert(s, k, id, holder|holder<<8), ""
}

// tidy drops what cannot matter any more: locks that nobody can use, messages that
// their receiver ignores, and swaps that are too late.
func (w *leaseWorld) tidy(s []uint32) []uint32 {
	for k := w.head(); k < w.wire(s); {
		used := w.thaw
		for i := range w.n {
			used = used || s[i] != 0 && w.life(s, i).view.Epoch == w.views[s[k]].Epoch
		}
		if used {
			k += 2
			continue
		}
		s = slices.Delete(s, k, k+2)
		s[w.head()-1]--
	}
	k := w.wire(s)
	s = s[:k+len(slices.DeleteFunc(s[k:], func(id uint32) bool {
		f := &w.flights[id]
		if !w.alive(s, f.to) {
			return true
		}
		l := w.life(s, placeOf(f.to))
		if l.ended != Outside || l.self > f.To {
			return true
		}
		p := l.peer(f.From)
		if p == nil && l.self == f.To && f.From <= l.record.Highest {
			return true // the sender was a member, and never is one again
		}
		known := f.Kind != Report || f.View.Epoch < l.view.Epoch || p != nil && p.life == f.from && p.epoch >= f.View.Epoch
		return known && l.cleared >= f.Cleared && (f.Kind == Cleared || f.View.Epoch <= l.record.Epoch)
	}))]
	for i := range w.n {
		if g := &s[2*w.n+i]; *g != 0 && w.ghosts[*g].read != s[w.store()] {
			*g = 0
		}
		if s[w.n+i]&7 == openSwap && w.life(s, i).read != s[w.store()] && !w.blind {
			s[w.n+i] = lateSwap
		}
	}
	return s
}

// exclusive checks that one life at most holds the lock.
func (w *leaseWorld) exclusive(s []uint32) string {
	first := -1
	for i := range w.n {
		if s[i] == 0 || w.life(s, i).fence == 0 {
			continue
		}
		if first >= 0 {
			return fmt.Sprintf("two holders: %c and %c", 'a'+first, 'a'+i)
		}
		first = i
	}
	return ""
}

// good reports whether all is well: the lives that are there are the members, and act.
func (w *leaseWorld) good(s []uint32) bool {
	r := &w.records[s[w.store()]]
	n := 0
	for i := range w.n {
		if s[i] == 0 {
			if s[3*w.n+i] != 0 && s[3*w.n+i]&departed == 0 {
				return false
			}
			continue
		}
		l := w.life(s, i)
		if n++; l.phase != Acting || l.leaving || l.view.Epoch != r.Epoch || l.LeaseEnd() <= 0 {
			return false
		}
	}
	return n == 0 || len(r.Members) == n
}

// complaint names the lives that wait forever in a state from which none is reached in
// which all is well.
func (w *leaseWorld) complaint(s []uint32) string {
	var b strings.Builder
	b.WriteString("stuck:")
	for i := range w.n {
		if l := w.life(s, i); s[i] != 0 {
			fmt.Fprintf(&b, " %c is %v in %v,", 'a'+i, l.phase, l.view)
		}
	}
	return strings.TrimSuffix(b.String(), ",")
}

// step returns what an input does to a life.
func (w *leaseWorld) step(key leaseStepKey) *leaseStep {
	id, ok := w.stepID[key]
	if !ok {
		id = uint32(len(w.steps))
		w.steps = append(w.steps, w.run(key))
		w.stepID[key] = id
	}
	return &w.steps[id]
}

func (w *leaseWorld) run(key leaseStepKey) (t leaseStep) {
	var l leased
	if key.do == start {
		m, err := NewLease(LeaseConfig{Life: key.arg, Lease: int64(w.lease) * unit})
		if err != nil {
			panic(err)
		}
		m.drain = int64(w.wait) * unit
		l = leased{LeaseMachine: m}
	} else {
		l = w.lives[key.at]
		l.LeaseMachine = l.Clone()
	}
	if key.late {
		l.Clock(laterEpoch)
	}
	input := func() []Message { return l.Tick(0) }
	var refused error
	switch key.do {
	case start, tick:
	case deliver:
		input = func() []Message {
			out, err := l.Handle(0, w.flights[key.arg].Message)
			refused = err
			return out
		}
	case suspect:
		input = func() []Message {
			p := l.peer(dmutex.NodeID(key.arg))
			p.here, p.awayAt = false, -1<<60
			out := l.Tick(0)
			p.here = true // only the suspicion matters
			return out
		}
	case load:
		l.loadAt, l.renewAt, l.hintAt = 0, 0, min(l.hintAt, 0)
	case answer:
		switch record := uint32(key.arg >> 4); key.arg & 7 {
		case openLoad:
			l.read = record
			input = func() []Message { return l.Loaded(0, w.texts[record]) }
		case doneSwap:
			l.read = l.want
			input = func() []Message { return l.Swapped(0) }
		case lateSwap:
			input = func() []Message { return l.Conflict(0) }
		}
	case lose:
		input = func() []Message { return l.Unknown(0) }
	case pass:
		l.leaseFrom, l.since, l.sentAt = l.leaseFrom-unit, l.since-unit, l.sentAt-unit
		if l.fence != 0 && !w.holdable(&l) {
			t.lost = true
			if l.fence = 0; w.revive {
				l.lost = w.lives[key.at].fence
			}
		}
	case release:
		l.fence = 0
	case acquire:
		l.fence = key.arg
	case leave:
		input = func() []Message { return l.Leave(0) }
	case alarm:
		input = func() []Message {
			out := l.Trouble(0, l.view.Epoch)
			l.troubleAt = 0
			return append(out, l.Tick(0)...)
		}
	}
	broken := w.alter
	if broken == nil {
		broken = func(_ *LeaseMachine, _ verb, input func() []Message) []Message { return input() }
	}
	var out []Message
	epoch := l.view.Epoch
	for do := key.do; ; do = report {
		out = append(out, broken(l.LeaseMachine, do, input)...)
		if l.phase = l.Phase(); l.self == dmutex.None || l.phase == Stopped || l.view.Epoch < epoch {
			l.fence = 0 // it is not a member
		}
		epoch = l.view.Epoch
		if l.lost != 0 && w.holdable(&l) {
			l.fence, l.lost = l.lost, 0
		}
		if op, value := l.Operation(); op != NoOperation {
			if t.opened = op; op == Swap {
				l.want = w.record(value)
			}
		}
		if l.Spent() {
			input = func() []Message { return l.Rejoin(0, l.cfg.Life+16) }
		} else if p := l.unmet(); p != nil {
			input = func() []Message { return l.Met(0, p.node, p.life) }
		} else if l.view.Epoch > 0 && !l.reported && l.ended == Outside {
			input = func() []Message { return l.Report(0, w.holds(&l)) }
		} else {
			break
		}
	}
	if refused != nil {
		return leaseStep{wrong: "refused: " + refused.Error()}
	}
	for _, o := range out {
		if life := w.lifeOf(&l, o.To); life != 0 {
			t.sent = append(t.sent, w.flight(l.cfg.Life, life, o))
		}
	}
	if h := l.Holders(); len(h) > 0 {
		t.holder = uint32(placeOf(l.view.life(h[0].Node)) + 1)
	}
	l.freeze()
	t.to = w.intern(l)
	return t
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
func (w *leaseWorld) lifeOf(l *leased, node dmutex.NodeID) uint64 {
	if p := l.peer(node); p != nil {
		return p.life
	}
	return 0
}

func (w *leaseWorld) holds(l *leased) []Hold {
	if l.fence == 0 || w.forget {
		return nil
	}
	return []Hold{{"x", l.fence}}
}

// freeze makes of all times of pauses that which may be now and that which may not, and
// keeps of others what still matters, so that lives of equal text are equal.
func (l *leased) freeze() {
	m := l.LeaseMachine
	m.cfg.Clock, m.now, m.joinAt, m.joinedAt, m.installedAt = 0, 0, 0, 0, 0
	m.vain, m.prompted = 0, false
	m.trip, m.fails, m.losses, m.exclusions, m.flaps, m.quarrel, m.acted = 0, 0, 0, 0, 0, 0, false
	m.loadAt, m.renewAt = later(0, false), later(0, false)
	if m.hintAt != never {
		m.hintAt = later(0, false)
	}
	if m.troubleAt != never {
		m.troubleAt = 0
	}
	for i := range m.peers {
		p := &m.peers[i]
		if p.since, p.awayAt = 0, 0; p.epoch < m.view.Epoch {
			p.epoch, p.holding = 0, nil
		}
		if p.epoch == m.view.Epoch && m.complete {
			p.holding = nil
		}
	}
	if m.complete { // they were sent
		m.holding = nil
	}
	if m.acting { // they are in the lock
		m.holders = nil
	}
	if m.leaseFrom = max(m.leaseFrom, -m.cfg.Lease); m.self == dmutex.None {
		m.leaseFrom = 0
	}
	if m.since = max(m.since, -m.drain); m.cleared >= m.unclean {
		m.since = 0
	}
	if m.sentAt = max(m.sentAt, -m.cfg.Lease); m.op == NoOperation {
		m.sentAt = 0
	}
	if m.op != Swap {
		m.next = Record{}
	}
}

// intern returns the number of a life's state.
func (w *leaseWorld) intern(l leased) uint32 {
	if l.op != Swap {
		l.want = 0
	}
	b, _ := l.AppendText(w.scratch[:0])
	b = appendNumber(b, " read=", uint64(l.read))
	b = appendNumber(b, " holds ", l.fence)
	b = appendNumber(b, " lost ", l.lost)
	for _, at := range []int64{l.leaseFrom, l.since, l.sentAt} {
		b = strconv.AppendInt(append(b, ' '), at/unit, 10)
	}
	w.scratch = b
	id, ok := w.lifeID[string(b)]
	if !ok {
		id = uint32(len(w.lives))
		w.lives = append(w.lives, l)
		w.lifeID[string(b)] = id
	}
	return id
}

func (w *leaseWorld) record(text []byte) uint32 {
	id, ok := w.recordID[string(text)]
	if !ok {
		var r Record
		if err := r.UnmarshalText(text); err != nil {
			panic(err)
		}
		id = uint32(len(w.records))
		w.records, w.texts = append(w.records, r), append(w.texts, slices.Clone(text))
		w.recordID[string(text)] = id
	}
	return id
}

func (w *leaseWorld) ghost(g ghost) uint32 {
	id, ok := w.ghostID[g]
	if !ok {
		id = uint32(len(w.ghosts))
		w.ghosts = append(w.ghosts, g)
		w.ghostID[g] = id
	}
	return id
}

func (w *leaseWorld) flight(from, to uint64, msg Message) uint32 {
	text := msg.String()
	key := fmt.Sprint(from, to, text)
	id, ok := w.flightID[key]
	if !ok {
		id = uint32(len(w.flights))
		w.flights = append(w.flights, leaseFlight{msg, from, to, text})
		w.flightID[key] = id
	}
	return id
}

// tell writes an action down, and what has changed with it. A life is named by its
// place, a, b and so on, and its number among the lives there.
func (w *leaseWorld) tell(b *strings.Builder, s, t []uint32, a action) {
	name := func(s []uint32, i int) string { return fmt.Sprintf("%c%d", 'a'+i, s[3*w.n+i]&0xff) }
	who := name(s, a.i%w.n)
	switch a.do {
	case deliver:
		f := &w.flights[s[a.i]]
		fmt.Fprintf(b, "deliver %c to %c: %s\n", 'a'+placeOf(f.from), 'a'+placeOf(f.to), f.text)
	case answer:
		switch word := s[w.n+a.i]; word & 7 {
		case openLoad:
			fmt.Fprintf(b, "%s has read %v\n", who, w.tellRecord(word>>4))
		case doneSwap:
			fmt.Fprintf(b, "%s hears that its swap was done\n", who)
		case lateSwap:
			fmt.Fprintf(b, "%s hears that its swap was too late\n", who)
		}
	case lose:
		fmt.Fprintf(b, "%s waits no longer for the store\n", who)
	case swap, land:
		fmt.Fprintf(b, "%s has its swap done\n", who)
	case wipe:
		b.WriteString("the record is lost\n")
	case serve:
	case slow:
		fmt.Fprintf(b, "the store is slow to answer %s\n", who)
	case suspect:
		fmt.Fprintf(b, "%s suspects %c\n", who, 'a'+placeOf(w.life(s, a.i).peer(dmutex.NodeID(a.j)).life))
	case load:
		fmt.Fprintf(b, "%s loads the record\n", who)
	case tick:
		fmt.Fprintf(b, "%s has waited long enough\n", who)
	case pass:
		b.WriteString("time passes\n")
	case start:
		fmt.Fprintf(b, "%s starts\n", name(t, a.i))
	default:
		fmt.Fprintf(b, "%s %v\n", who, a.do)
	}
	if r := t[w.store()]; r != s[w.store()] && r != 0 {
		fmt.Fprintf(b, "    the record is %v\n", w.tellRecord(r))
	}
	for i := range w.n {
		if s[i] == 0 || t[i] == 0 || t[i] == s[i] {
			continue
		}
		l, was := w.life(t, i), w.life(s, i)
		if was.phase != l.phase || was.view.Epoch != l.view.Epoch {
			fmt.Fprintf(b, "    %s is %v", name(t, i), l.phase)
			if l.view.Epoch > 0 {
				fmt.Fprintf(b, " in %v", l.view)
			}
			b.WriteByte('\n')
		}
		if was.fence != 0 && l.fence == 0 && a.do != release {
			fmt.Fprintf(b, "    %s has lost what it held\n", name(t, i))
		}
	}
}

func (w *leaseWorld) tellRecord(id uint32) string {
	if id == 0 {
		return "gone"
	}
	return string(appendRecord(nil, "", &w.records[id]))
}
