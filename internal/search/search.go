// Package search visits every state of a world, and returns the shortest run to
// anything that is wrong.
//
// A world is a small group of machines with all that may happen to it: messages that
// arrive, members that crash, time that passes. A package that explores something
// writes a [World] for it and runs a [Search].
package search

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
)

// A World is one state, of type W, of an exploration. S is a step that may happen next:
// an [Event], or a small value of the world's own, which is faster.
type World[W, S any] interface {
	// Clone returns a copy. It may take the memory of spare, a world that is no longer
	// needed or the zero W.
	Clone(spare W) W

	// AppendState appends all that decides what may happen later. Worlds that append
	// the same are one state.
	AppendState(b []byte) []byte

	// Steps appends what may happen next, in an order that depends on the state only.
	Steps(list []S) []S

	// Do takes a step. It returns [ErrOutside] if that leaves the bounds of the
	// search, and a *[Violation] if something is wrong then.
	Do(step S) error

	// Tell appends a line on a step, and lines on what it changed: after is the world
	// after Do, even if Do returned an error.
	Tell(b []byte, step S, after W) []byte
}

// ErrOutside is returned by [World.Do] for a step that the search leaves out.
var ErrOutside = errors.New("outside of the bounds")

// An Event is a step of a world whose speed does not matter: a function and a name.
type Event[W any] struct {
	Do     func(W) error
	format string
	args   []any
}

// NewEvent returns an Event. Its name is formatted only when it is needed.
func NewEvent[W any](do func(W) error, format string, args ...any) Event[W] {
	return Event[W]{do, format, args}
}

// String returns the name.
func (e Event[W]) String() string { return fmt.Sprintf(e.format, e.args...) }

// A Violation is a run in which something went wrong.
type Violation struct {
	Kind   error  // what
	Why    string // which nodes, and how
	Script string // the run
}

// Error returns what went wrong, and the whole run.
func (v *Violation) Error() string { return fmt.Sprintf("%v: %s\n\n%s", v.Kind, v.Why, v.Script) }

// Unwrap returns Kind.
func (v *Violation) Unwrap() error { return v.Kind }

// Wrong returns a Violation whose run is not known yet.
func Wrong(kind error, format string, args ...any) *Violation {
	return &Violation{Kind: kind, Why: fmt.Sprintf(format, args...)}
}

// A Report says what a search has seen.
type Report struct {
	States   int  // different ones
	Steps    int  // transitions between them
	Depth    int  // length of the longest of the shortest runs to a state
	Some     int  // states in which Search.Some holds
	Least    int  // steps that count in a whole run, at least
	Greatest int  // and at most
	Complete bool // nothing was left out within the bounds, and nothing is wrong
}

// Limits say how far a search goes.
type Limits struct {
	MaxStates int               // stop after about this many; 0 does not
	Progress  func(Report) bool // called from time to time; false stops. May be nil
}

// A Search says where to begin and what must hold. Functions may be nil.
type Search[W World[W, S], S any] struct {
	Limits
	First W
	State func(w W) error             // checks every state
	Step  func(before, after W) error // checks every step
	Some  func(w W) bool              // what Report.Some counts

	// Liveness. It is about steps that happen sooner or later by themselves.
	Fair  func(w W, step S) bool // whether a step is one of these; nil: all are
	Ends  error                  // if not nil, such steps never go on forever; the kind of the violation if they do
	Good  func(w W) bool         // from every state, such steps can reach one in which this holds
	Stuck func(w W) error        // the violation in a state from which they cannot; goes with Good
	Lean  bool                   // only check that such a step leaves every state that is not Good: half the memory

	Counts func(step S) bool // what Report.Least and Greatest count, if Ends is set

	// Script writes the run to a violation, from what Tell wrote. If it is nil, the run
	// is that and the violation.
	Script func(told string, last W, v *Violation) string
}

// Run visits the states, shortest runs first. Its error is the first [*Violation] with a
// shortest run to it (of runs that may go on forever just one of many), or another error
// of a function of the Search. In any case the Report says how far it came.
//
// A state is remembered by a fingerprint of 64 bits. The chance that two of n states have
// the same, so that one is never visited, is about n*n/2^65: one in a million for 6
// million states.
func (s Search[W, S]) Run() (Report, error) {
	x := exploration[W, S]{Search: s, seen: make(map[uint64]uint32), ends: []uint32{0}, live: !s.Lean && (s.Ends != nil || s.Good != nil)}
	err := x.run()
	return x.Report, err
}

// Tell takes the steps of a run. It returns what they tell, and the last world.
func Tell[W World[W, S], S any](first W, run []S) (told string, last W) {
	var none W
	var b []byte
	last = first.Clone(none)
	for _, step := range run {
		after := last.Clone(none)
		_ = after.Do(step) // the error of the last step is known
		b = last.Tell(b, step, after)
		last = after
	}
	return string(b), last
}

// An exploration is the state of a Run. States are numbered as they are found. Only the
// worlds whose steps are not known yet are kept: others are reached again from the
// beginning through parent.
type exploration[W World[W, S], S any] struct {
	Search[W, S]
	Report
	seen   map[uint64]uint32 // the number of a state, by its fingerprint
	parent []uint32          // by state
	next   []W               // the worlds that the present level has found
	spare  []W               // worlds that are no longer needed
	list   []S               // scratch
	after  []successor[W]    // scratch
	key    []byte            // scratch

	live  bool
	ends  []uint32 // by state: where its edges begin
	edges []uint32 // of fair steps: the state after it, marked if the step counts
	good  []bool   // by state: it is good, or a fair step leaves the bounds
}

const counted = 1 << 31

// A successor is the world after step k of the present one.
type successor[W any] struct {
	world W
	print uint64
	k     int
	fair  bool
	err   error
}

func (x *exploration[W, S]) run() error {
	first := x.First.Clone(x.unused())
	x.seen[x.print(first)] = 0
	if err := x.add(first, 0); err != nil {
		return err
	}
	id, this := uint32(0), []W(nil)
	for depth := 0; len(x.next) > 0; depth++ {
		x.Depth = depth
		this, x.next = x.next, this[:0]
		for _, w := range this {
			if err := x.expand(id, w); err != nil {
				return err
			}
			x.spare = append(x.spare, w)
			if x.full() || x.Progress != nil && id%(1<<16) == 0 && !x.Progress(x.Report) {
				return nil
			}
			id++
		}
	}
	var err error
	switch {
	case x.live && x.Ends != nil:
		err = x.ending()
	case x.live:
		err = x.reaching()
	}
	x.Complete = err == nil
	return err
}

// full reports whether the search must be cut short.
func (x *exploration[W, S]) full() bool {
	return x.MaxStates > 0 && x.States >= x.MaxStates ||
		uint64(x.States) >= counted-1<<16 || uint64(len(x.edges)) >= math.MaxUint32-1<<16 // the numbers are used up
}

// add numbers and checks a new state, to which a step of state from led.
func (x *exploration[W, S]) add(w W, from uint32) error {
	x.States++
	x.parent, x.next = append(x.parent, from), append(x.next, w)
	if x.Search.Some != nil && x.Search.Some(w) {
		x.Report.Some++
	}
	if x.State != nil {
		if err := x.State(w); err != nil {
			return x.failed(err, x.way(uint32(x.States-1)))
		}
	}
	return nil
}

// unused returns a world that is no longer needed, if there is one.
func (x *exploration[W, S]) unused() (w W) {
	if n := len(x.spare); n > 0 {
		w, x.spare = x.spare[n-1], x.spare[:n-1]
	}
	return w
}

// print returns the fingerprint of a world.
func (x *exploration[W, S]) print(w W) uint64 {
	x.key = w.AppendState(x.key[:0])
	return fingerprint(x.key)
}

// expand finds the states that follow state id. It looks them up together, so that the
// processor can wait for several slots of the table at a time.
func (x *exploration[W, S]) expand(id uint32, w W) error {
	rests, good := true, x.Good == nil
	x.list, x.after = w.Steps(x.list[:0]), x.after[:0]
	for k, step := range x.list {
		s := successor[W]{world: w.Clone(x.unused()), k: k, fair: x.Fair == nil || x.Fair(w, step)}
		rests = rests && !s.fair
		s.err = s.world.Do(step)
		if s.err == ErrOutside {
			good = good || s.fair
			x.spare = append(x.spare, s.world)
			continue
		}
		if s.err == nil && x.Step != nil {
			s.err = x.Step(w, s.world)
		}
		if s.err == nil {
			s.print = x.print(s.world)
		}
		if x.after = append(x.after, s); s.err != nil {
			break
		}
	}
	for _, s := range x.after {
		if s.err != nil {
			return x.failed(s.err, append(x.way(id), x.list[s.k]))
		}
		to, known := x.seen[s.print]
		if !known {
			to = uint32(x.States)
			x.seen[s.print] = to
		}
		x.Steps++
		if edge := to; s.fair && x.live {
			if x.Counts != nil && x.Counts(x.list[s.k]) {
				edge |= counted
			}
			x.edges = append(x.edges, edge)
		}
		if known {
			x.spare = append(x.spare, s.world)
		} else if err := x.add(s.world, id); err != nil {
			return err
		}
	}
	if !good && (rests || x.live && x.Ends == nil) { // else it does not matter
		good = x.Good(w)
	}
	if rests && !good {
		return x.failed(x.Stuck(w), x.way(id))
	}
	if x.live {
		x.ends, x.good = append(x.ends, uint32(len(x.edges))), append(x.good, good)
	}
	return nil
}

// leads returns the edges of a state.
func (x *exploration[W, S]) leads(id uint32) []uint32 {
	return x.edges[x.ends[id]:x.ends[id+1]]
}

// ending checks that fair steps come to an end, by walking all of them depth first: a
// step into a state from which we came closes a cycle. On the way back it finds the least
// and the greatest number of steps that count, from each state on. Every run then ends
// in a state without a fair step, and expand has found those to be good.
func (x *exploration[W, S]) ending() error {
	const unseen, open = 1<<32 - 1, 1<<32 - 2
	least, greatest := slices.Repeat([]uint32{unseen}, x.States), make([]uint32, x.States)
	var stack []uint32 // the states from which we came
	for root := range uint32(x.States) {
		if least[root] == unseen {
			stack = append(stack, root)
		}
	walk:
		for len(stack) > 0 {
			id := stack[len(stack)-1]
			least[id] = open
			low, high := uint32(unseen), uint32(0)
			for _, edge := range x.leads(id) {
				to := edge &^ counted
				switch least[to] {
				case unseen:
					stack = append(stack, to)
					continue walk
				case open:
					cycle := append(stack[slices.Index(stack, to)+1:], to)
					return x.failed(Wrong(x.Ends, "the last %d steps may repeat forever", len(cycle)), x.through(x.way(to), cycle, true))
				}
				low, high = min(low, least[to]+edge>>31), max(high, greatest[to]+edge>>31)
			}
			if low == unseen {
				low = 0 // the end of a run
			}
			least[id], greatest[id] = low, high
			stack = stack[:len(stack)-1]
		}
	}
	x.Least, x.Greatest = int(least[0]), int(greatest[0])
	return nil
}

// reaching checks that fair steps can reach a good state from every state.
func (x *exploration[W, S]) reaching() error {
	for more := true; more; {
		more = false
		for id := x.States - 1; id >= 0; id-- {
			if !x.good[id] && slices.ContainsFunc(x.leads(uint32(id)), func(edge uint32) bool { return x.good[edge&^counted] }) {
				x.good[id], more = true, true
			}
		}
	}
	id := slices.Index(x.good, false)
	if id < 0 {
		return nil
	}
	run := x.way(uint32(id))
	_, last := Tell(x.First, run)
	return x.failed(x.Stuck(last), run)
}

// way returns the steps by which a state was found.
func (x *exploration[W, S]) way(id uint32) []S {
	var states []uint32
	for ; id != 0; id = x.parent[id] {
		states = append(states, id)
	}
	slices.Reverse(states)
	return x.through(nil, states, false)
}

// through extends a run through these states, by fair steps only if fair is set.
func (x *exploration[W, S]) through(run []S, states []uint32, fair bool) []S {
	_, w := Tell(x.First, run)
	for _, id := range states {
		steps, after := w.Steps(nil), w
		k := slices.IndexFunc(steps, func(step S) bool {
			after = w.Clone(x.unused())
			return (!fair || x.Fair == nil || x.Fair(w, step)) && after.Do(step) == nil && x.seen[x.print(after)] == id
		})
		if k < 0 {
			panic("search: a world is not the same when its steps are taken again")
		}
		run, w = append(run, steps[k]), after
	}
	return run
}

// failed adds the run to a violation.
func (x *exploration[W, S]) failed(err error, run []S) error {
	v, ok := errors.AsType[*Violation](err)
	if !ok {
		return err
	}
	told, last := Tell(x.First, run)
	v = &Violation{Kind: v.Kind, Why: v.Why}
	if v.Script = fmt.Sprintf("%s\n%v: %s\n", told, v.Kind, v.Why); x.Script != nil {
		v.Script = x.Script(told, last, v)
	}
	return v
}

// fingerprint mixes a state into 64 bits.
func fingerprint(b []byte) uint64 {
	h := mix(uint64(len(b)))
	for ; len(b) >= 8; b = b[8:] {
		h = mix(h ^ binary.LittleEndian.Uint64(b))
	}
	var rest [8]byte
	copy(rest[:], b)
	return mix(h ^ binary.LittleEndian.Uint64(rest[:]))
}

func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
