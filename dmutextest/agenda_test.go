package dmutextest

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// An agenda gives its events out as a stable sort would put them.
func TestAgenda(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		var a agenda
		var twin []event // the same, sorted
		now := int64(0)
		for what := range uint32(500) {
			e := event{at: now + random.Int64N(20), order: a.count, what: what, do: deliver}
			a.add(e.at, e.do, e.what)
			twin = append(twin, e)
			slices.SortStableFunc(twin, func(e, f event) int { return cmp.Compare(e.at, f.at) })
			for len(twin) > 0 && random.IntN(5) < 2 {
				got := a.next()
				require.Equal(t, twin[0], got, "seed %d", seed)
				twin, now = twin[1:], got.at
			}
		}
		for len(twin) > 0 {
			require.Equal(t, twin[0], a.next(), "seed %d", seed)
			twin = twin[1:]
		}
		require.Empty(t, a.heap)
	}
}
