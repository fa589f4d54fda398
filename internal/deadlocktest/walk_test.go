package deadlocktest

import (
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/deadlock"
)

// walk makes a random run to its end, and counts the messages.
func (w *world) walk(t *testing.T, rng *rand.Rand, seed int) {
	type edge struct {
		deadlock.Message
		wait uint64 // of the sender
	}
	sent := map[edge]int{}
	for {
		steps := w.Steps(nil)
		if len(steps) == 0 {
			break
		}
		before := w.Clone(nil)
		require.NoError(t, steps[rng.IntN(len(steps))].Do(w))
		require.NoError(t, w.declares(before), "seed %d", seed)
		require.NoError(t, w.declared(), "seed %d", seed)
		known := before.wire
		for _, m := range w.wire {
			if k := slices.Index(known, m); k >= 0 {
				known = slices.Delete(known, k, k+1)
				continue
			}
			if m.Kind >= request {
				continue
			}
			e := edge{m, w.nodes[m.From-1].number}
			if m.Kind == deadlock.Reply { // at most one for each wait of the receiver's
				e.wait = w.nodes[m.To-1].number
			}
			sent[e]++
			require.Equal(t, 1, sent[e], "%v twice, seed %d", m, seed)
		}
	}
}

// Groups too large to explore: 4 nodes that wait for up to 3 others, over and
// over. "at most one probe over each wait in a computation", and at most one
// REPLY to each QUERY.
func TestWalk(t *testing.T) {
	walks := 400
	if os.Getenv("DMUTEX_LONG") != "" {
		walks = 100_000
	}
	for _, or := range []bool{false, true} {
		model := And
		if or {
			model = Or
		}
		found := 0
		for seed := range walks {
			rng := rand.New(rand.NewPCG(1, uint64(seed)))
			tr := &Trial{Model: model, Waits: []int{4, 4, 4, 4}, Widest: slices.Repeat([]int{1 + seed%3}, 4), AtOnce: seed%2 == 0}
			w := tr.begin()
			w.walk(t, rng, seed)
			if slices.ContainsFunc(w.nodes, func(n node) bool { return n.Deadlocked() }) {
				found++
			}
		}
		require.NotZero(t, found)
		t.Log("or", or, "deadlocks in", found, "of", walks)
	}
}
