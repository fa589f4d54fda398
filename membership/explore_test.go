package membership

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// A found is what an exploration has come to.
type found struct {
	states int
	all    bool   // nothing was left out within the bounds
	wrong  string // what is wrong, with the shortest run to it
	run    string
}

// An explorer finds the states of a world, breadth first.
type explorer struct {
	*world
	seen   table
	parent []uint32
	via    []uint16 // which of the parent's possible actions
	done   uint32   // states whose next states are known
	ends   []uint32 // where the edges of a state end; nil if lean
	edges  []uint32 // what happens by itself
	lean   bool
}

// explore visits every state within the bounds. Beside what apply checks, no
// state in which nothing happens by itself is other than good, and what
// happens by itself comes to an end. So every run without further faults ends
// well, or leaves the bounds.
//
// A lean exploration does not look whether what happens by itself comes to an end: that
// takes most of the memory.
func explore(s setup, most int, lean bool) found {
	e := &explorer{world: newWorld(s), lean: lean}
	e.seen.find(fingerprint(e.first), 0)
	e.parent, e.via = []uint32{0}, []uint16{0}
	this := append([]uint32{uint32(len(e.first))}, e.first...)
	var next []uint32
	for id := uint32(0); len(this) > 0; {
		for k := 0; k < len(this); id++ {
			s := this[k+1 : k+1+int(this[k])]
			k += 1 + len(s)
			var wrong string
			if next, wrong = e.expand(id, s, next); wrong != "" {
				return found{states: len(e.parent), wrong: wrong, run: e.retell(id, wrong)}
			}
			if most > 0 && len(e.parent) >= most {
				return found{states: len(e.parent)}
			}
		}
		this, next = next, this[:0]
	}
	if lean {
		return found{states: len(e.parent), all: true}
	}
	if id, cycle := e.cycle(); cycle {
		const wrong = "what happens by itself may never end"
		return found{states: len(e.parent), wrong: wrong, run: e.retell(id, wrong)}
	}
	return found{states: len(e.parent), all: true}
}

// expand finds the states that follow state id, and adds the new ones to next.
func (e *explorer) expand(id uint32, s, next []uint32) ([]uint32, string) {
	rests := true
	for k, a := range e.possible(s) {
		fair := e.fair(s, a)
		rests = rests && !fair
		t, wrong := e.apply(s, a)
		if wrong == outside || wrong == "" && e.beyond(t) {
			continue
		}
		if wrong != "" {
			e.parent, e.via = append(e.parent, id), append(e.via, uint16(k))
			return nil, wrong
		}
		to, fresh := e.seen.find(fingerprint(t), uint32(len(e.parent)))
		if fair && !e.lean {
			e.edges = append(e.edges, to)
		}
		if fresh {
			next = append(append(next, uint32(len(t))), t...)
			e.parent, e.via = append(e.parent, id), append(e.via, uint16(k))
		}
	}
	if e.done++; !e.lean {
		e.ends = append(e.ends, uint32(len(e.edges)))
	}
	if rests && !e.good(s) {
		return nil, e.complaint(s)
	}
	return next, ""
}

// cycle finds a state to which one can return by what happens by itself.
func (e *explorer) cycle() (uint32, bool) {
	begins := func(id uint32) uint32 {
		if id == 0 {
			return 0
		}
		return e.ends[id-1]
	}
	const unseen, open, done = 0, 1, 2
	mark := make([]uint8, len(e.parent))
	type frame struct{ state, edge uint32 }
	var stack []frame
	for id := range uint32(len(e.parent)) {
		if mark[id] == unseen {
			mark[id] = open
			stack = append(stack, frame{id, begins(id)})
		}
		for len(stack) > 0 {
			top := &stack[len(stack)-1]
			if top.edge == e.ends[top.state] {
				mark[top.state] = done
				stack = stack[:len(stack)-1]
				continue
			}
			to := e.edges[top.edge]
			top.edge++
			switch mark[to] {
			case open:
				return to, true
			case unseen:
				mark[to] = open
				stack = append(stack, frame{to, begins(to)})
			}
		}
	}
	return 0, false
}

// retell writes down the run to state id, or if something is wrong with what
// was found last from there, to that.
func (e *explorer) retell(id uint32, wrong string) string {
	if last := uint32(len(e.parent) - 1); e.parent[last] == id && e.done == id {
		id = last
	}
	var run []uint16
	for ; id != 0; id = e.parent[id] {
		run = append(run, e.via[id])
	}
	slices.Reverse(run)
	var b strings.Builder
	s := e.first
	for _, k := range run {
		a := e.possible(s)[k]
		t, _ := e.apply(s, a)
		t = slices.Clone(t)
		e.tell(&b, s, t, a)
		s = t
	}
	fmt.Fprintf(&b, "\n%s\n", wrong)
	return b.String()
}

// A table finds the number of a state by its fingerprint.
type table struct {
	slots []slot
	used  int
}

type slot struct {
	print uint64 // 0 if free
	id    uint32
}

func (t *table) find(print uint64, id uint32) (found uint32, fresh bool) {
	if 4*t.used >= 3*len(t.slots) {
		old := t.slots
		t.slots = make([]slot, max(1024, 2*len(old)))
		for _, s := range old {
			if s.print != 0 {
				*t.slot(s.print) = s
			}
		}
	}
	s := t.slot(print)
	if s.print != 0 {
		return s.id, false
	}
	*s = slot{print, id}
	t.used++
	return id, true
}

func (t *table) slot(print uint64) *slot {
	mask := uint64(len(t.slots) - 1)
	for k := print & mask; ; k = (k + 1) & mask {
		if s := &t.slots[k]; s.print == 0 || s.print == print {
			return s
		}
	}
}

// fingerprint mixes a state into 64 bits, never 0. Among n states two have the
// same with a chance of about n*n/2^65: one in two thousand for 100 million.
func fingerprint(s []uint32) uint64 {
	mix := func(h uint64) uint64 {
		hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
		return hi ^ lo
	}
	h := mix(uint64(len(s)))
	for _, v := range s {
		h = mix(h ^ uint64(v))
	}
	return max(h, 1)
}
