package deadlocktest

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/dmutextest"
)

// A ChaseReport is what an exploration of [Chases], or a number of random runs,
// has seen.
type ChaseReport struct {
	States   int
	Circles  int // states in which there is one
	Victims  int // steps by which a wait is ended
	Complete bool
}

// Explore visits every state, shortest runs first: whoever ends its wait was in
// a circle, which loses no other wait for it, and every circle would be found
// by its youngest member if it stayed. It returns a [*dmutextest.Violation] with
// a shortest run to the first that is wrong, and in any case how far it came. A
// state is remembered by a fingerprint of 64 bits.
func (t *Chases) Explore() (r ChaseReport, err error) {
	var (
		visits  = []visit{{-1, 0}}
		worlds  = []*chases{t.begin()}
		visited = map[uint64]struct{}{}
		key     []byte
	)
	wrong := func(v *dmutextest.Violation, at int, way ...int32) (ChaseReport, error) {
		for i := at; visits[i].from >= 0; i = int(visits[i].from) {
			way = append(way, visits[i].step)
		}
		slices.Reverse(way)
		v.Script = fmt.Sprintf("%s%v: %s\n", t.replay(way), v.Kind, v.Why)
		return r, v
	}
	for at := 0; at < len(worlds); at++ {
		w := worlds[at]
		worlds[at] = nil
		r.States = len(visits)
		if w.someCircle() {
			r.Circles++
			if v := w.standing(); v != nil {
				return wrong(v, at)
			}
		}
		for s, step := range w.steps() {
			next := w.clone()
			declared := len(next.declared)
			if v := next.do(step); v != nil {
				return wrong(v, at, int32(s))
			}
			r.Victims += len(next.declared) - declared
			key = next.text(key[:0])
			hash := maphash.Bytes(seed, key)
			if _, old := visited[hash]; !old {
				visited[hash] = struct{}{}
				visits = append(visits, visit{int32(at), int32(s)})
				worlds = append(worlds, next)
			}
		}
		r.States = len(visits)
		if t.MaxStates > 0 && r.States > t.MaxStates || t.Progress != nil && at%(1<<12) == 0 && !t.Progress(r) {
			return r, nil
		}
	}
	r.Complete = true
	return r, nil
}

func (w *chases) someCircle() bool {
	for t := range w.txns {
		if len(w.around(t)) > 0 {
			return true
		}
	}
	return false
}

// replay tells a run.
func (t *Chases) replay(way []int32) string {
	log := &strings.Builder{}
	w := t.begin()
	for _, s := range way {
		step := w.steps()[s]
		log.WriteString(w.tell(step) + "\n")
		declared := len(w.declared)
		if v := w.do(step); v == nil && len(w.declared) > declared {
			fmt.Fprintf(log, "    and a wait is ended\n")
		}
	}
	fmt.Fprintf(log, "\n%v\n", w)
	return log.String()
}

// Simulate makes a random run of so many steps, and then lets everybody end what
// it has begun: who waits chases, who does not releases. It returns how many
// waits were ended; none may be left. Like Explore it returns a
// [*dmutextest.Violation] if anything is wrong.
func (t *Chases) Simulate(seed uint64, steps int) (victims int, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	w := t.begin()
	var log []string
	do := func(s chaseStep) *dmutextest.Violation {
		log = append(log, w.tell(s))
		v := w.do(s)
		if v == nil {
			v = w.standing()
		}
		if v != nil {
			v.Script = fmt.Sprintf("seed %d\n%s\n\n%v", seed, strings.Join(log, "\n"), w)
		}
		return v
	}
	for range steps {
		all := w.steps()
		if len(all) == 0 {
			break
		}
		if v := do(all[random.IntN(len(all))]); v != nil {
			return len(w.declared), v
		}
	}
	for calm := 0; ; calm++ {
		for i := range w.txns {
			w.txns[i].acquires = 0
			if len(w.wire) == 0 {
				w.txns[i].chases = 1
			}
		}
		w.withdrawals, w.early = 0, 0
		all := w.steps()
		if len(all) == 0 {
			return len(w.declared), nil
		}
		if calm > 10_000 {
			return len(w.declared), &dmutextest.Violation{Kind: ErrMissed, Why: fmt.Sprintf("seed %d: there is no end\n%v", seed, w)}
		}
		if v := do(all[random.IntN(len(all))]); v != nil {
			return len(w.declared), v
		}
	}
}
