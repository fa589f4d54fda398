package lockrecord

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex/internal/search"
)

// A world is a state of some contenders for one lock, the store, and time. Time passes in
// units, for all at once; leases and waits are some units long. A contender may pause at any
// time, for any time: each of its actions, and each answer that it takes, is a step of its
// own.
//
// The store answers at once, but some operations are slow. A slow operation takes effect
// some time after it was asked for, and is answered some time after that. It may be given up
// at any time. A swap that was given up may still take effect later.
type world struct {
	*setup
	now    int64
	value  string
	rev    int // of the record; 0 before the first
	last   int // the last revision that was given
	places []place
	ghosts []swap
	left   faults
	grants int
	top    uint64 // the highest fence that was granted
	floor  uint64 // drawn fences are above it, as it follows the clocks
}

// A place is where one life at a time runs.
type place struct {
	m     *Machine // nil if there is no life
	lives int      // so far
	op    pending

	robbed    bool   // the record was deleted while the life was there
	forgotten bool   // the store does not know the life
	since     int64  // when it forgot the life
	left      string // the life that has left
}

// A pending is an operation that a life has asked for.
type pending struct {
	op   Operation
	done bool
	swap      // what to swap, or what a load has shown
	ok   bool // the swap was done, and its revision is rev
}

type swap struct {
	value string
	rev   int
}

// A setup says who is there, and what may go wrong.
type setup struct {
	lease, wait int64 // in units
	lives       int   // at each of two places
	grants      int   // at most
	prover      bool  // the store proves death
	lifeless    bool  // but not that of these contenders
	empty       bool  // there is no record at first
	leaves      bool  // look at what those leave behind that have left
	faults      faults

	alter  func(w *world, i int, do string, input func()) // breaks a rule of the machine
	blind  bool                                           // breaks the store: a swap does not compare
	always bool                                           // breaks the prover: anybody is dead
}

// faults are how often each may happen.
type faults struct{ crashes, slow, cancels, wipes, forgets int }

func (s setup) name() string {
	return fmt.Sprintf("lease %d, wait %d, lives %d, grants %d, prover %v, lifeless %v, empty %v, leaves %v, %+v", s.lease, s.wait, s.lives, s.grants, s.prover, s.lifeless, s.empty, s.leaves, s.faults)
}

// unit is the unit of time, in nanoseconds.
const unit = 1_000_000_000

type event = search.Event[*world]

func newWorld(s setup) *world {
	w := &world{setup: &s, left: s.faults, places: make([]place, 2)}
	if !s.empty {
		w.write((&Record{Lock: "l", Fence: 1, Lease: s.lease * unit}).AppendText(nil))
		w.top = 1
	}
	return w
}

func (w *world) write(value []byte) {
	w.last++
	w.value, w.rev = string(value), w.last
}

func (w *world) Clone(*world) *world {
	c := *w
	c.places, c.ghosts = slices.Clone(w.places), slices.Clone(w.ghosts)
	for i, p := range c.places {
		if p.m != nil {
			m := *p.m
			c.places[i].m = &m
		}
	}
	return &c
}

// AppendState writes revisions as their ranks, and times as how long ago they were.
func (w *world) AppendState(b []byte) []byte {
	revs := []int{w.rev}
	for _, p := range w.places {
		if p.m != nil {
			revs = append(revs, number(p.m.rev))
		}
		if p.op.op != None {
			revs = append(revs, p.op.rev)
		}
	}
	for _, g := range w.ghosts {
		revs = append(revs, g.rev)
	}
	slices.Sort(revs)
	revs = slices.Compact(revs)
	rank := func(rev int) int { return slices.Index(revs, rev) }
	ago := func(t, most int64) int64 { return min((w.now-t)/unit, most) }
	b = fmt.Appendf(b, "%q %d %v %d %d\n", w.value, rank(w.rev), w.left, w.grants, w.top)
	for _, p := range w.places {
		b = fmt.Appendf(b, "%d %v %v %s ", p.lives, p.robbed && p.m != nil, p.forgotten, p.left)
		if p.forgotten && !w.lifeless {
			b = fmt.Appendf(b, "%d ", ago(p.since, w.lease))
		}
		if m := p.m; m != nil {
			b = fmt.Appendf(b, "%s %s %d %v %v %v %v %d %v %d %v ", m.life, m.unprovable, m.op, m.proved, m.stale, m.unsure, m.leaving, rank(number(m.rev)), m.seen, m.phase, m.mine())
			if !m.stale {
				b = fmt.Appendf(b, "%d %s ", m.record.Fence, m.record.Holder)
			}
			switch m.phase {
			case Waiting:
				b = fmt.Appendf(b, "%d ", ago(m.seenAt, w.wait))
			case Held:
				b = fmt.Appendf(b, "%d %d ", ago(m.Expiry()-w.lease*unit, w.lease), m.record.Fence)
			}
			if p.op.op == Swap || p.op.op == Load && w.alter != nil {
				b = fmt.Appendf(b, "%d ", ago(m.sentAt, w.lease))
			}
			if p.op.op != None {
				b = fmt.Appendf(b, "%d %v %v %q %d", p.op.op, p.op.done, p.op.ok, p.op.value, rank(p.op.rev))
			}
		}
		b = append(b, '\n')
	}
	for _, g := range w.ghosts {
		b = fmt.Appendf(b, "%q %d\n", g.value, rank(g.rev))
	}
	return b
}

func (m *Machine) due(now int64) bool {
	op, at := m.next()
	return op != None && now >= at
}

func number(rev string) int {
	n, _ := strconv.Atoi(rev)
	return n
}

// holds reports whether the life at a place holds the lock, and its lease runs or is not needed. A
// driver whose store has forgotten the life notices within a lease.
func (w *world) holds(i int) bool {
	p := w.places[i]
	if p.m == nil || p.robbed || p.m.phase != Held {
		return false
	}
	lasts := p.m.lasts && (!p.forgotten || w.now < p.since+w.lease*unit)
	return lasts || w.now < p.m.Expiry()
}

func (w *world) Steps(steps []event) []event {
	add := func(do func(w *world) error, format string, args ...any) {
		steps = append(steps, search.NewEvent(do, format, args...))
	}
	add(func(w *world) error { w.now += unit; return nil }, "time passes")
	for i, p := range w.places {
		who := string(rune('a' + i))
		m := p.m
		if m == nil {
			if p.lives < w.lives {
				add(func(w *world) error { return w.start(i) }, "%s begins", who)
			}
			continue
		}
		input := func(do string, input func(w *world)) {
			add(func(w *world) error { return w.input(i, do, func() { input(w) }) }, "%s %s", who, do)
		}
		switch {
		case p.op.op == None && m.due(w.now):
			add(func(w *world) error {
				if err := w.input(i, "asks", func() { w.ask(i) }); err != nil || w.places[i].op.op == None {
					return err
				}
				w.effect(i)
				return w.input(i, "is answered", func() { w.answer(i) })
			}, "%s asks the store", who)
			if w.left.slow > 0 {
				input("asks slowly", func(w *world) { w.left.slow--; w.ask(i) })
			}
		case p.op.op != None && !p.op.done:
			add(func(w *world) error { w.effect(i); return nil }, "the store does what %s asks", who)
		case p.op.op != None:
			input("is answered", func(w *world) { w.answer(i) })
		}
		if p.op.op != None {
			input("gives up", func(w *world) { w.lose(i) })
		}
		if r, rev, ok := m.Awaits(); ok {
			input("polls", func(w *world) { w.places[i].m.Poll() })
			switch {
			case !w.prover:
			case !w.knows(r.Holder):
				input("hears of no proof", func(w *world) { w.places[i].m.Unprovable(w.now, r.Holder) })
			case w.dead(i, r.Holder):
				input("sees the proof", func(w *world) { w.places[i].m.Proved(rev) })
			}
		}
		switch {
		case m.leaving:
		case m.phase == Held || m.phase == Ended:
			input("releases", func(w *world) { w.places[i].m.Release(w.now) })
		case w.left.cancels > 0:
			input("cancels", func(w *world) { w.left.cancels--; w.places[i].m.Release(w.now) })
		}
		if w.left.forgets > 0 && !p.forgotten {
			add(func(w *world) error {
				w.left.forgets--
				w.places[i].forgotten, w.places[i].since = true, w.now
				return nil
			}, "the life of %s is forgotten", who)
		}
		if w.left.crashes > 0 {
			add(func(w *world) error { w.left.crashes--; w.abandon(i); w.places[i].m = nil; return nil }, "%s crashes", who)
		}
	}
	for j, g := range w.ghosts {
		add(func(w *world) error {
			w.ghosts = slices.Delete(w.ghosts, j, j+1)
			if g.rev == w.rev || w.blind {
				w.write([]byte(g.value))
			}
			return nil
		}, "the store does what was given up")
	}
	if w.left.wipes > 0 && w.value != "" {
		add(func(w *world) error {
			w.left.wipes--
			w.write(nil)
			w.floor += 100
			for i := range w.places {
				w.places[i].robbed = w.places[i].m != nil
			}
			return nil
		}, "the record is deleted")
	}
	return steps
}

// fair reports whether a step happens by itself sooner or later.
func fair(_ *world, step event) bool {
	for _, fault := range []string{"begins", "slowly", "gives up", "given up", "cancels", "crashes", "deleted", "forgotten"} {
		if strings.HasSuffix(step.String(), fault) {
			return false
		}
	}
	return true
}

// life names the last life of a place.
func (w *world) life(i int) string { return string(rune('a'+i)) + strconv.Itoa(w.places[i].lives) }

// knows reports whether the store can tell when a life is over.
func (w *world) knows(life string) bool {
	for i, p := range w.places {
		if w.life(i) == life {
			return !p.forgotten
		}
	}
	return !w.lifeless
}

// dead reports whether a life is over.
func (w *world) dead(i int, life string) bool {
	if w.always {
		return true
	}
	for k, p := range w.places {
		if k != i && p.m != nil && p.m.life == life {
			return false
		}
	}
	return true
}

func (w *world) start(i int) error {
	p := &w.places[i]
	p.lives++
	p.robbed, p.forgotten, p.since = false, w.lifeless, w.now
	p.m = New("l", w.life(i), "", w.lease*unit)
	wait := w.wait * unit
	p.m.drain = func(int64) int64 { return wait }
	if w.prover {
		p.m.Prover(!w.lifeless)
	}
	return nil
}

// abandon gives up the operation of a place.
func (w *world) abandon(i int) {
	p := &w.places[i]
	if p.op.op == Swap && !p.op.done {
		w.ghosts = append(w.ghosts, p.op.swap)
		slices.SortFunc(w.ghosts, func(a, b swap) int { return a.rev - b.rev })
	}
	p.op = pending{}
}

func (w *world) ask(i int) {
	p := &w.places[i]
	op, value, rev := p.m.Operation(w.now, w.floor)
	if op != None { // else the lease has ended
		p.op = pending{op: op, swap: swap{string(value), number(rev)}}
	}
}

func (w *world) effect(i int) {
	op := &w.places[i].op
	op.done = true
	switch {
	case op.op == Load:
		op.swap = swap{w.value, w.rev}
	case op.rev == w.rev || w.blind:
		w.write([]byte(op.value))
		*op = pending{op: Swap, done: true, ok: true, swap: swap{rev: w.rev}}
	default:
		*op = pending{op: Swap, done: true}
	}
}

func (w *world) answer(i int) {
	p := &w.places[i]
	op := p.op
	p.op = pending{}
	switch rev := strconv.Itoa(op.rev); {
	case op.op == Load:
		p.m.Loaded(w.now, []byte(op.value), rev)
	case op.ok:
		p.m.Swapped(w.now, rev)
	default:
		p.m.Unknown(w.now)
	}
}

func (w *world) lose(i int) {
	w.abandon(i)
	w.places[i].m.Unknown(w.now)
}

// The ways to go wrong.
var (
	errTwo   = errors.New("two hold the lock")
	errFence = errors.New("a fence does not rise")
	errStuck = errors.New("nobody can get the lock")
	errLeft  = errors.New("the others wait for one that has left")
)

// input gives a machine an input, and checks what it was granted.
func (w *world) input(i int, do string, input func()) error {
	p := &w.places[i]
	before, m := p.m.phase, p.m
	if w.alter != nil {
		w.alter(w, i, do, input)
	} else {
		input()
	}
	if m.phase == Over {
		p.m, p.op = nil, pending{}
		if m.leaving && w.leaves {
			p.left = m.life
		}
	}
	if before == Waiting && m.phase == Held && !p.robbed {
		if w.grants++; w.grants > w.setup.grants {
			return search.ErrOutside
		}
		if m.record.Fence <= w.top {
			return search.Wrong(errFence, "a grant has the fence %d, after one with %d", m.record.Fence, w.top)
		}
		w.top = m.record.Fence
	}
	return nil
}

func (w *world) Do(step event) error {
	if err := step.Do(w); err != nil {
		return err
	}
	if w.holds(0) && w.holds(1) {
		return search.Wrong(errTwo, "with fences %d and %d", w.places[0].m.record.Fence, w.places[1].m.record.Fence)
	}
	if w.leaves {
		r, err := parse([]byte(w.value), "l")
		if err != nil {
			return err
		}
		for _, p := range w.places {
			if r.Holder != "" && r.Holder == p.left {
				return search.Wrong(errLeft, "the record says that %s holds the lock", r.Holder)
			}
		}
	}
	return nil
}

func (w *world) good() bool {
	return !slices.ContainsFunc(w.places, func(p place) bool { return p.m != nil && (p.m.phase == Waiting || p.m.leaving) })
}

func (w *world) Tell(b []byte, step event, after *world) []byte {
	b = fmt.Appendf(b, "%v\n", step)
	if w.value != after.value {
		b = fmt.Appendf(b, "    the record is %s\n", after.show())
	}
	for i := range w.places {
		is := func(w *world) string {
			if w.holds(i) {
				return fmt.Sprintf("holds the lock with fence %d", w.places[i].m.record.Fence)
			}
			return "does not hold the lock"
		}
		if is(w) != is(after) {
			b = fmt.Appendf(b, "    %c %s\n", 'a'+i, is(after))
		}
	}
	return b
}

func (w *world) show() string {
	r, _ := parse([]byte(w.value), "l")
	switch {
	case w.value == "":
		return "gone"
	case r.Holder == "":
		return fmt.Sprintf("free after fence %d", r.Fence)
	}
	return fmt.Sprintf("held by %s with fence %d", r.Holder, r.Fence)
}

// explore visits every state within the bounds.
func explore(s setup, most int) (search.Report, error) {
	return search.Search[*world, event]{
		First:  newWorld(s),
		Fair:   fair,
		Good:   (*world).good,
		Stuck:  func(*world) error { return search.Wrong(errStuck, "from here on") },
		Limits: search.Limits{MaxStates: most},
	}.Run()
}
