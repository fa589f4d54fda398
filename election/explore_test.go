package election

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
)

// A report is what an exploration found.
type report struct{ states, rests int }

var seed = maphash.MakeSeed()

// explore visits every state of a trial, shortest runs first, and returns the
// run to the first that is wrong. That there is an end and no circle means that
// every run comes to rest.
func (t *trial) explore() (r report, run string, err error) {
	type visit struct {
		from int32
		step int16
	}
	first, err := t.begin()
	if err != nil {
		return r, "", err
	}
	var (
		visits  = []visit{{-1, 0}}
		visited = map[uint64]int32{}
		worlds  = []*world{first}
		into    = []int32{0}
		edges   [][]int32
		key     []byte
	)
	path := func(i int, last string, err error) (report, string, error) {
		var way []int16
		for ; visits[i].from >= 0; i = int(visits[i].from) {
			way = append(way, visits[i].step)
		}
		slices.Reverse(way)
		return r, t.replay(way, last) + err.Error() + "\n", err
	}
	limit := t.limit
	if limit == 0 {
		limit = 1_000_000
	}
	visited[maphash.Bytes(seed, first.text(nil))] = 0
	for at := 0; at < len(worlds); at++ {
		w := worlds[at]
		worlds[at] = nil
		steps := w.steps()
		out := make([]int32, 0, len(steps))
		for s, step := range steps {
			next := w.clone()
			err := step.do(next)
			if err == nil {
				err = next.check()
			}
			if err != nil {
				r.states = len(visits)
				return path(at, step.name, err)
			}
			key = next.text(key[:0])
			hash := maphash.Bytes(seed, key)
			to, old := visited[hash]
			if !old {
				to = int32(len(visits))
				visited[hash] = to
				visits = append(visits, visit{int32(at), int16(s)})
				worlds = append(worlds, next)
				into = append(into, 0)
			}
			out = append(out, to)
			into[to]++
		}
		edges = append(edges, out)
		r.states = len(visits)
		if w.atRest() {
			r.rests++
			if err := w.agree(); err != nil {
				return path(at, "", err)
			}
		}
		if r.states > limit {
			return path(at, "", wrong("more than %d states", limit))
		}
	}
	// Take away states into which no step leads until none is left.
	left := len(visits)
	for free := []int32{0}; len(free) > 0; left-- {
		i := free[len(free)-1]
		free = free[:len(free)-1]
		for _, to := range edges[i] {
			if into[to]--; into[to] == 0 {
				free = append(free, to)
			}
		}
	}
	if left > 0 {
		at := slices.IndexFunc(into, func(n int32) bool { return n > 0 })
		return path(at, "", wrong("this begins a circle, with %d states in it or behind it", left))
	}
	return r, "", nil
}

func (w *world) atRest() bool {
	for _, m := range w.machines {
		if m != nil && m.state().left > 0 {
			return false
		}
	}
	return !w.anyNews() && !slices.ContainsFunc(w.channels, func(queue []Message) bool { return len(queue) > 0 })
}

// replay tells a run.
func (t *trial) replay(way []int16, last string) string {
	log := &strings.Builder{}
	fmt.Fprintf(log, "%d nodes; majority rule: %v; ", t.nodes, t.majority)
	w, err := t.begin()
	if err != nil {
		return err.Error()
	}
	if t.starts == nil {
		leader, epoch := w.machines[0].Leader()
		fmt.Fprintf(log, "%d leads, epoch %d", leader, epoch)
	} else {
		log.WriteString("they run at first:")
	}
	for _, i := range t.starts {
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
