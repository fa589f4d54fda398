package dmutextest

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// A Report is what an exploration, or a number of random runs, has seen.
type Report struct {
	Network  Network
	States   int  // different states of the group; 0 for random runs
	Steps    int  // transitions between them
	Depth    int  // length of the longest of the shortest runs to a state; of the longest run if they are random
	Most     int  // messages in flight from one node to another at one time
	Least    int  // messages received or lost in a whole run, at least
	Greatest int  // and at most
	Dense    bool // the n-th grant had the fence Config.Fence + n
	Complete bool // nothing was left out: every run has been seen, and every run ends
}

// String returns the report on one line.
func (r Report) String() string {
	var b strings.Builder
	if r.States > 0 {
		fmt.Fprintf(&b, "%d states, ", r.States)
	}
	fmt.Fprintf(&b, "%d steps, depth %d, %v, at most %d in a channel", r.Steps, r.Depth, r.Network, r.Most)
	if r.Greatest > 0 {
		fmt.Fprintf(&b, ", %d to %d messages a run", r.Least, r.Greatest)
	}
	if r.Dense {
		b.WriteString(", dense fences")
	}
	if r.Complete {
		b.WriteString(", complete")
	}
	return b.String()
}

// A Violation is a run in which something went wrong.
type Violation struct {
	Kind   error  // what: ErrMutualExclusion or another
	Why    string // which nodes, and how
	Script string // the run, see RunScript
}

// Error returns what went wrong, and the whole run.
func (v *Violation) Error() string { return fmt.Sprintf("%v: %s\n\n%s", v.Kind, v.Why, v.Script) }

// Unwrap returns Kind.
func (v *Violation) Unwrap() error { return v.Kind }

// Explore runs a group through every order of events that the network allows,
// breadth first, until it has seen all states. It returns a [*Violation] with the
// shortest run to the first thing that is wrong (an [ErrLivelock] has just one
// run of many), or [dmutex.ErrMisuse] for a Config that makes no sense. In any
// case the Report says how far it came.
//
// If nothing is wrong and the Report is Complete, then in this group and network
// no two nodes are ever in the critical section together, fences rise, and every
// run ends with every request granted or withdrawn and nothing left over.
//
// States are recognized by a fingerprint of 64 bits. The chance that two of n
// states have the same fingerprint, so that one is never seen, is about n*n/2^65:
// one in a million for 6 million states.
func Explore(c Config) (Report, error) {
	m, s, err := newModel(c)
	if err != nil {
		return Report{Network: c.Network}, err
	}
	e := &explorer{model: m, begin: s}
	if v := e.explore(); v != nil {
		return e.report(), v
	}
	return e.report(), nil
}

// An explorer finds the states of a model and the edges between them. States
// are numbered as they are found. Only those of the last level are kept; the others
// are reached again from the beginning through via.
type explorer struct {
	*model
	begin    []uint32
	seen     table
	parent   []uint32 // by state
	via      []uint16 // by state: which of the parent's possible actions led to it
	ends     []uint32 // by state: where its edges end
	edges    []uint32 // the state that the edge leads to | removes
	depth    int
	complete bool
	least    int
	greatest int
}

// removes marks an edge on which a message is received or lost.
const removes = 1 << 31

func (e *explorer) report() Report {
	return Report{
		Network: e.cfg.Network, States: len(e.parent), Steps: len(e.edges), Depth: e.depth,
		Most: e.most, Least: e.least, Greatest: e.greatest, Dense: !e.sparse, Complete: e.complete,
	}
}

func (e *explorer) explore() *Violation {
	e.seen.find(fingerprint(e.begin), 0)
	e.parent, e.via = append(e.parent, 0), append(e.via, 0)
	if f := e.rests(e.begin); f != nil {
		return e.violation(f, e.begin, nil)
	}
	// Each level of the search is a list of states, each with its length first.
	this := append([]uint32{uint32(len(e.begin))}, e.begin...)
	var next []uint32
	for id := uint32(0); len(this) > 0; {
		for k := 0; k < len(this); id++ {
			s := this[k+1 : k+1+int(this[k])]
			k += 1 + len(s)
			var v *Violation
			if next, v = e.expand(id, s, next); v != nil {
				return v
			}
			if e.full() || e.cfg.Progress != nil && id%(1<<16) == 0 && !e.cfg.Progress(e.report()) {
				return nil
			}
		}
		this, next = next, this[:0]
		if len(this) > 0 {
			e.depth++
		}
	}
	return e.ending()
}

// full reports whether the exploration is to be cut short.
func (e *explorer) full() bool {
	return e.cfg.MaxStates > 0 && len(e.parent) >= e.cfg.MaxStates ||
		uint64(len(e.parent)) >= removes-1<<16 || uint64(len(e.edges)) >= math.MaxUint32-1<<16 // the numbers are used up
}

// expand finds the states that follow state id, and adds the new ones to next.
func (e *explorer) expand(id uint32, s, next []uint32) ([]uint32, *Violation) {
	for k, a := range e.possible(s) {
		t, f := e.apply(s, a)
		if f != nil {
			return nil, e.violation(f, e.begin, append(e.path(id), k))
		}
		to, fresh := e.seen.find(fingerprint(t), uint32(len(e.parent)))
		if a.do == deliver || a.do == lose {
			e.edges = append(e.edges, to|removes)
		} else {
			e.edges = append(e.edges, to)
		}
		if !fresh {
			continue
		}
		next = append(append(next, uint32(len(t))), t...)
		e.parent, e.via = append(e.parent, id), append(e.via, uint16(k))
		if f := e.rests(t); f != nil {
			return nil, e.violation(f, e.begin, e.path(to))
		}
	}
	e.ends = append(e.ends, uint32(len(e.edges)))
	return next, nil
}

// ending proves that every run ends, by walking all of them depth first: a
// step into a state from which we came closes a cycle. On the way back it
// finds the least and the greatest number of messages from each state on.
func (e *explorer) ending() *Violation {
	const unseen, open = 1<<32 - 1, 1<<32 - 2
	least := slices.Repeat([]uint32{unseen}, len(e.parent))
	greatest := make([]uint32, len(e.parent))
	type frame struct{ state, edge uint32 }
	begins := func(id uint32) uint32 {
		if id == 0 {
			return 0
		}
		return e.ends[id-1]
	}
	least[0] = open
	stack := []frame{{0, 0}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if top.edge < e.ends[top.state] {
			to := e.edges[top.edge] &^ removes
			top.edge++
			switch least[to] {
			case unseen:
				least[to] = open
				stack = append(stack, frame{to, begins(to)})
			case open:
				k := slices.IndexFunc(stack, func(f frame) bool { return f.state == to })
				run := e.path(to)
				for _, f := range stack[k:] {
					run = append(run, int(f.edge-1-begins(f.state)))
				}
				return e.violation(faultf(ErrLivelock, "the last %d steps may repeat forever", len(stack)-k), e.begin, run)
			}
			continue
		}
		id := top.state
		stack = stack[:len(stack)-1]
		low, high := uint32(unseen), uint32(0)
		for _, edge := range e.edges[begins(id):e.ends[id]] {
			low = min(low, least[edge&^removes]+edge>>31)
			high = max(high, greatest[edge&^removes]+edge>>31)
		}
		if begins(id) == e.ends[id] {
			low = 0
		}
		least[id], greatest[id] = low, high
	}
	e.least, e.greatest, e.complete = int(least[0]), int(greatest[0]), true
	return nil
}

// path returns how state id was found: each step by its place among the
// actions that were possible.
func (e *explorer) path(id uint32) []int {
	var run []int
	for ; id != 0; id = e.parent[id] {
		run = append(run, int(e.via[id]))
	}
	slices.Reverse(run)
	return run
}

// violation returns a run as a script.
func (m *model) violation(f *fault, begin []uint32, run []int) *Violation {
	var commands []string
	s := begin
	for _, k := range run {
		a := m.possible(s)[k]
		commands = append(commands, m.command(s, a))
		t, _ := m.apply(s, a)
		s = slices.Clone(t)
	}
	return m.tell(f, commands)
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

// find returns the state with this fingerprint; if there is none, it is id
// from now on, and fresh.
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

// fingerprint mixes a state into 64 bits, never 0.
func fingerprint(s []uint32) uint64 {
	h := mix(uint64(len(s)))
	for len(s) >= 2 {
		h = mix(h ^ uint64(s[0]) ^ uint64(s[1])<<32)
		s = s[2:]
	}
	if len(s) == 1 {
		h = mix(h ^ uint64(s[0]))
	}
	return max(h, 1)
}

func mix(h uint64) uint64 {
	hi, lo := bits.Mul64(h^0x9e3779b97f4a7c15, 0xd6e8feb86659fd93)
	return hi ^ lo
}
