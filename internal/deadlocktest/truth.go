package deadlocktest

import (
	"slices"

	"github.com/dmutex/dmutex/internal/search"
)

// reach returns, from each node, the nodes that can be reached along waits whose
// grant is not in flight.
func (w *world) reach() [][]bool {
	n := len(w.machines)
	reach := make([][]bool, n)
	for i := range n {
		reach[i] = slices.Clone(w.waiting[i])
		for j := range n {
			if w.granted(j, i) {
				reach[i][j] = false
			}
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
			}
		}
	}
	return reach
}

// granted reports whether a grant of j's present wait is in flight from i.
func (w *world) granted(i, j int) bool {
	return slices.ContainsFunc(w.channels[i*len(w.machines)+j], func(t item) bool {
		return t.kind == "GRANT" && t.number == w.number[j] && w.waiting[j][i]
	})
}

// truth returns which nodes are deadlocked.
func (w *world) truth(reach [][]bool) (deadlocked []bool) {
	n := len(w.machines)
	free := make([]bool, n) // OR: it is active, or will be
	for i := range n {
		free[i] = !w.blocked(i)
		for j := range n {
			free[i] = free[i] || w.granted(j, i)
		}
	}
	for i := range n {
		dead := reach[i][i]
		if w.Or {
			dead = !free[i]
			for j := range n {
				dead = dead && !(reach[i][j] && free[j])
			}
		}
		deadlocked = append(deadlocked, dead)
	}
	return deadlocked
}

// declares checks that a node that declares a deadlock in a step is in one after
// it.
func (w *world) declares(before *world) error {
	for i, m := range w.machines {
		if m.Deadlocked() && !before.machines[i].Deadlocked() && !w.truth(w.reach())[i] {
			return search.Wrong(ErrPhantom, "%d is not deadlocked", i+1)
		}
	}
	return nil
}

// declared checks that, when all have called Detect and no message is in flight,
// each deadlock is declared by a node in it: in the AND model by one on the same
// cycles, in the OR model by one of those that can be reached.
func (w *world) declared() error {
	if slices.Contains(w.undone, true) || slices.ContainsFunc(w.channels, func(queue []item) bool { return len(queue) > 0 }) {
		return nil
	}
	reach := w.reach()
	for i, dead := range w.truth(reach) {
		found := w.machines[i].Deadlocked()
		for j, m := range w.machines {
			found = found || m.Deadlocked() && reach[i][j] && (w.Or || reach[j][i])
		}
		if dead && !found {
			return search.Wrong(ErrMissed, "the deadlock of %d", i+1)
		}
	}
	return nil
}
