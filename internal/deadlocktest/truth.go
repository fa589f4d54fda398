package deadlocktest

import (
	"slices"

	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/internal/search"
)

// reach returns what each node reaches along waits whose grant is not in flight.
func (w *world) reach() [][]bool {
	reach := make([][]bool, len(w.nodes))
	for i := range w.nodes {
		for j, waits := range w.nodes[i].waits {
			reach[i] = append(reach[i], waits && !w.granted(j, i))
		}
	}
	for k := range reach {
		for i := range reach {
			for j := range reach {
				reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
			}
		}
	}
	return reach
}

// granted reports whether a grant of j's present wait is in flight from i.
func (w *world) granted(i, j int) bool {
	n := &w.nodes[j]
	return n.waits[i] && slices.Contains(w.wire, deadlock.Message{Kind: grant, From: id(i), To: id(j), Number: n.number})
}

// truth returns which nodes are deadlocked.
func (w *world) truth(reach [][]bool) (deadlocked []bool) {
	free := make([]bool, len(reach)) // OR: it is active, or will be
	for i := range free {
		free[i] = !w.nodes[i].blocked()
		for j := range free {
			free[i] = free[i] || w.granted(j, i)
		}
	}
	for i := range reach {
		dead := reach[i][i]
		if w.Or {
			dead = !free[i]
			for j := range reach {
				dead = dead && !(reach[i][j] && free[j])
			}
		}
		deadlocked = append(deadlocked, dead)
	}
	return deadlocked
}

// declares checks that a node that declares a deadlock in a step is in one after it.
func (w *world) declares(before *world) error {
	for i := range w.nodes {
		if w.nodes[i].Deadlocked() && !before.nodes[i].Deadlocked() && !w.truth(w.reach())[i] {
			return search.Wrong(ErrPhantom, "%d is not deadlocked", i+1)
		}
	}
	return nil
}

// declared checks that, when all have called Detect and no message is in flight,
// each deadlock is declared by a node in it: in the AND model by one on the same
// cycles, in the OR model by one of those that can be reached.
func (w *world) declared() error {
	if len(w.wire) > 0 || slices.ContainsFunc(w.nodes, func(n node) bool { return n.undone }) {
		return nil
	}
	reach := w.reach()
	for i, dead := range w.truth(reach) {
		found := w.nodes[i].Deadlocked()
		for j := range w.nodes {
			found = found || w.nodes[j].Deadlocked() && reach[i][j] && (w.Or || reach[j][i])
		}
		if dead && !found {
			return search.Wrong(ErrMissed, "the deadlock of %d", i+1)
		}
	}
	return nil
}
