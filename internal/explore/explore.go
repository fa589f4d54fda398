// Package explore visits every state of a small group of machines of any kind, through
// every order of events.
package explore

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
)

// Wrong returns a violation whose run is not known yet.
func Wrong(kind error, format string, args ...any) *dmutextest.Violation {
	return &dmutextest.Violation{Kind: kind, Why: fmt.Sprintf(format, args...)}
}

// A World is a state W of a group.
type World[W any] interface {
	Clone() W
	AppendState(b []byte) []byte // equal text, equal future
	Steps() Steps[W]             // what may happen next

	// Log begins to write what each step brings about.
	Log(*strings.Builder)
}

// A Step is something that may happen next in a world W.
type Step[W any] struct {
	Do func(W) error // it may return a *dmutextest.Violation

	// Its name, which is written only in the run to a violation.
	format string
	args   []any
}

func (s Step[W]) String() string { return fmt.Sprintf(s.format, s.args...) }

// Steps is a list of steps.
type Steps[W any] []Step[W]

// Add adds a step and its name.
func (s *Steps[W]) Add(do func(W) error, format string, args ...any) {
	*s = append(*s, Step[W]{do, format, args})
}

// A Search says what to explore and what must hold.
type Search[W World[W]] struct {
	Begin func() (W, error)
	State func(w W) error             // checks every state
	Step  func(before, after W) error // checks every step; may be nil
	Ends  error                       // the kind of violation if a run has no end; nil if it need not have one

	// Script writes a run that ends in a violation, from the log of its steps.
	Script func(log string, w W, v *dmutextest.Violation) string

	MaxStates int                   // stop after about this many; 0 does not
	Progress  func(states int) bool // called from time to time; false stops. May be nil
}

// Run visits the states, shortest runs first. It returns how many it has seen and
// whether these are all. Its error is that of Begin, or the first
// [*dmutextest.Violation], with a shortest run to it. A state is remembered by a
// fingerprint of 64 bits.
func (s Search[W]) Run() (states int, complete bool, err error) {
	x := exploration[W]{Search: s, visited: make(map[uint64]int32)}
	complete, err = x.run()
	return len(x.visits), complete, err
}

// An exploration is how far Run is.
type exploration[W World[W]] struct {
	Search[W]
	visits  []visit // the states, in the order in which they were found
	visited map[uint64]int32
	worlds  []W // of each state, until its steps are known
	key     []byte

	edges [][]int32 // if every run must have an end
	into  []int32   // how many steps lead to each state
}

// A visit is how a state was found first.
type visit struct{ from, step int32 }

var seed = maphash.MakeSeed()

// found returns the number of a state, new or not.
func (x *exploration[W]) found(w W, by visit) int32 {
	x.key = w.AppendState(x.key[:0])
	hash := maphash.Bytes(seed, x.key)
	id, old := x.visited[hash]
	if !old {
		id = int32(len(x.visits))
		x.visited[hash] = id
		x.visits = append(x.visits, by)
		x.worlds = append(x.worlds, w)
	}
	return id
}

func (x *exploration[W]) run() (complete bool, err error) {
	first, err := x.Begin()
	if err != nil {
		return false, err
	}
	x.found(first, visit{-1, 0})
	var none W
	for at := 0; at < len(x.worlds); at++ {
		w := x.worlds[at]
		x.worlds[at] = none
		if err := x.State(w); err != nil {
			return false, x.failed(err, at)
		}
		var out []int32
		for i, step := range w.Steps() {
			next := w.Clone()
			err := step.Do(next)
			if err == nil && x.Step != nil {
				err = x.Step(w, next)
			}
			if err != nil {
				return false, x.failed(err, at, int32(i))
			}
			to := x.found(next, visit{int32(at), int32(i)})
			if x.Ends != nil {
				out = append(out, to)
			}
		}
		if x.Ends != nil {
			x.edges = append(x.edges, out)
		}
		if x.MaxStates > 0 && len(x.visits) > x.MaxStates || x.Progress != nil && at%(1<<12) == 0 && !x.Progress(len(x.visits)) {
			return false, nil
		}
	}
	if x.Ends != nil {
		return true, x.cycles()
	}
	return true, nil
}

// cycles looks for a run without an end. It takes away states into which no
// step leads, until none is left.
func (x *exploration[W]) cycles() error {
	x.into = make([]int32, len(x.visits))
	for _, out := range x.edges {
		for _, to := range out {
			x.into[to]++
		}
	}
	left := len(x.visits)
	var free []int32
	if x.into[0] == 0 {
		free = append(free, 0)
	}
	for ; len(free) > 0; left-- {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, to := range x.edges[i] {
			if x.into[to]--; x.into[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if left == 0 {
		return nil
	}
	at := slices.IndexFunc(x.into, func(n int32) bool { return n > 0 })
	return x.failed(Wrong(x.Ends, "this begins a cycle, with %d states in it or behind it", left), at)
}

// failed adds to an error the run that leads to it: to a state, and perhaps a step.
func (x *exploration[W]) failed(err error, at int, way ...int32) error {
	v, ok := errors.AsType[*dmutextest.Violation](err)
	if !ok {
		return err
	}
	for ; x.visits[at].from >= 0; at = int(x.visits[at].from) {
		way = append(way, x.visits[at].step)
	}
	slices.Reverse(way)
	w, err := x.Begin()
	if err != nil {
		return err
	}
	log := new(strings.Builder)
	w.Log(log)
	for _, i := range way {
		step := w.Steps()[i]
		fmt.Fprintln(log, step)
		_ = step.Do(w) // what is wrong with the last one is known
	}
	v.Script = x.Script(log.String(), w, v)
	return v
}
