package electiontest

import (
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/election"
)

var seed = maphash.MakeSeed()

// Explore visits every state of a trial, shortest runs first. It returns a
// [*dmutextest.Violation] with a shortest run to the first that is wrong, and
// in any case how far it came.
//
// Beside what the trial asks for: no epoch has two leaders, at no node does an
// epoch fall, every run comes to rest, and then all that reach each other have
// the highest of them as the leader, in one epoch; or none, if the majority
// rule is on and they are no majority.
//
// That there is an end and no circle means that every run comes to rest. A
// state is remembered by a fingerprint of 64 bits.
func (t *Trial) Explore() (Report, error) {
	x := &exploration{Trial: t, visited: map[uint64]int32{}}
	err := x.explore()
	return x.Report, err
}

// An exploration is how far Explore is.
type exploration struct {
	*Trial
	Report
	visits  []visit // the states, in the order in which they were found
	visited map[uint64]int32
	worlds  []*world // of each state; nil once its steps are known
	into    []int32  // how many steps lead to each
	edges   [][]int32
	key     []byte
}

// A visit is how a state was found first.
type visit struct {
	from int32
	step int16
}

// found returns the number of a state, new or not.
func (x *exploration) found(w *world, by visit) int32 {
	x.key = w.text(x.key[:0])
	hash := maphash.Bytes(seed, x.key)
	id, old := x.visited[hash]
	if !old {
		id = int32(len(x.visits))
		x.visited[hash] = id
		x.visits = append(x.visits, by)
		x.worlds = append(x.worlds, w)
		x.into = append(x.into, 0)
		x.States++
	}
	return id
}

func (x *exploration) explore() error {
	first, err := x.begin()
	if err != nil {
		return err
	}
	x.found(first, visit{-1, 0})
	for at := 0; at < len(x.worlds); at++ {
		w := x.worlds[at]
		x.worlds[at] = nil
		steps := w.steps()
		out := make([]int32, 0, len(steps))
		for s, step := range steps {
			next := w.clone()
			err := step.do(next)
			if err == nil {
				err = next.check()
			}
			if err != nil {
				return x.failed(at, step.name, err)
			}
			to := x.found(next, visit{int32(at), int16(s)})
			out = append(out, to)
			x.into[to]++
		}
		x.edges = append(x.edges, out)
		if w.atRest() {
			x.Rests++
			if err := w.agree(); err != nil {
				return x.failed(at, "", err)
			}
		}
		if x.MaxStates > 0 && x.States > x.MaxStates || x.Progress != nil && at%(1<<12) == 0 && !x.Progress(x.Report) {
			return nil
		}
	}
	x.Complete = true
	return x.circles()
}

// circles takes away states into which no step leads, until none is left.
func (x *exploration) circles() error {
	left := x.States
	for free := []int32{0}; len(free) > 0; left-- {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, to := range x.edges[i] {
			if x.into[to]--; x.into[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if left > 0 {
		at := slices.IndexFunc(x.into, func(n int32) bool { return n > 0 })
		return x.failed(at, "", wrong(ErrNoAgreement, "this begins a circle, with %d states in it or behind it", left))
	}
	return nil
}

// failed adds to what is wrong the run to it: to a state, and the last step.
func (x *exploration) failed(i int, last string, err error) error {
	var v *dmutextest.Violation
	if !errors.As(err, &v) {
		return err
	}
	var way []int16
	for ; x.visits[i].from >= 0; i = int(x.visits[i].from) {
		way = append(way, x.visits[i].step)
	}
	slices.Reverse(way)
	v.Script = x.replay(way, last) + "wrong: " + v.Why + "\n"
	return v
}

func (w *world) atRest() bool {
	for _, m := range w.machines {
		if m != nil && m.TicksLeft() > 0 {
			return false
		}
	}
	return !w.anyNews() && !slices.ContainsFunc(w.channels, func(queue []election.Message) bool { return len(queue) > 0 })
}

// replay tells a run.
func (t *Trial) replay(way []int16, last string) string {
	log := &strings.Builder{}
	fmt.Fprintf(log, "%d nodes; majority rule: %v; ", t.Nodes, t.Majority)
	w, err := t.begin()
	if err != nil {
		return err.Error()
	}
	if t.Starts == nil {
		leader, epoch := w.machines[0].Leader()
		fmt.Fprintf(log, "%d leads in epoch %d", leader, epoch)
	} else {
		log.WriteString("they run at first:")
	}
	for _, i := range t.Starts {
		fmt.Fprintf(log, " %d", i+1)
	}
	log.WriteString("\n\n")
	w.log = log
	for _, s := range way {
		step := w.steps()[s]
		log.WriteString(step.name + "\n")
		if err := step.do(w); err != nil {
			return log.String() + err.Error()
		}
	}
	if last != "" {
		for _, step := range w.steps() {
			if step.name == last {
				log.WriteString(step.name + "\n")
				_ = step.do(w) // the error is known
				break
			}
		}
	}
	return log.String() + "\n"
}
