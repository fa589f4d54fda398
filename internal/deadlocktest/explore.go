package deadlocktest

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
)

var seed = maphash.MakeSeed()

// Explore visits every state of a trial, shortest runs first: every deadlock is
// declared by somebody in it once all have called Detect and no message is on
// its way, and none is declared that does not exist. It returns a
// [*dmutextest.Violation] with a shortest run to the first that is wrong, and in
// any case how far it came. A state is remembered by a fingerprint of 64 bits.
func (t *Trial) Explore() (Report, error) {
	x := &exploration{Trial: t, visited: map[uint64]struct{}{}}
	if v := x.explore(); v != nil {
		return x.Report, v
	}
	return x.Report, nil
}

// An exploration is how far Explore is.
type exploration struct {
	*Trial
	Report
	visits  []visit // the states, in the order in which they were found
	visited map[uint64]struct{}
	worlds  []*world // of each state; nil once its steps are known
	key     []byte
}

// A visit is how a state was found first.
type visit struct{ from, step int32 }

func (x *exploration) found(w *world, by visit) {
	x.key = w.text(x.key[:0])
	hash := maphash.Bytes(seed, x.key)
	if _, old := x.visited[hash]; !old {
		x.visited[hash] = struct{}{}
		x.visits = append(x.visits, by)
		x.worlds = append(x.worlds, w)
		x.States++
	}
}

func (x *exploration) explore() *dmutextest.Violation {
	x.found(x.begin(), visit{-1, 0})
	for at := 0; at < len(x.worlds); at++ {
		w := x.worlds[at]
		x.worlds[at] = nil
		if slices.ContainsFunc(w.machines, Machine.Deadlocked) {
			x.Deadlocks++
		}
		if v := w.declared(); v != nil {
			return x.failed(v, at)
		}
		for s, step := range w.steps() {
			next := w.clone()
			step.do(next)
			if v := next.declares(w); v != nil {
				return x.failed(v, at, int32(s))
			}
			x.found(next, visit{int32(at), int32(s)})
		}
		if x.MaxStates > 0 && x.States > x.MaxStates || x.Progress != nil && at%(1<<12) == 0 && !x.Progress(x.Report) {
			return nil
		}
	}
	x.Complete = true
	return nil
}

// failed adds to what is wrong the run to it: to a state, and the last step.
func (x *exploration) failed(v *dmutextest.Violation, at int, way ...int32) *dmutextest.Violation {
	for i := at; x.visits[i].from >= 0; i = int(x.visits[i].from) {
		way = append(way, x.visits[i].step)
	}
	slices.Reverse(way)
	v.Script = fmt.Sprintf("%s%v: %s\n", x.replay(way), v.Kind, v.Why)
	return v
}

// replay tells a run.
func (t *Trial) replay(way []int32) string {
	log := &strings.Builder{}
	w := t.begin()
	for _, s := range way {
		step := w.steps()[s]
		log.WriteString(step.name + "\n")
		was := make([]bool, len(w.machines))
		for i, m := range w.machines {
			was[i] = m.Deadlocked()
		}
		step.do(w)
		for i, m := range w.machines {
			if m.Deadlocked() && !was[i] {
				fmt.Fprintf(log, "    %d declares a deadlock\n", i+1)
			}
		}
	}
	return log.String() + "\n"
}
