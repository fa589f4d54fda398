package quorum

import (
	"iter"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// coteries yields every coterie over n labeled sites, also those that leave sites
// out of every quorum. It uses the package's own laws: a family grows by any
// subset that breaks no law together with an earlier one.
func coteries(n int) iter.Seq[[]uint] {
	lawful := make([][]bool, 1<<n)
	for s := range lawful {
		lawful[s] = make([]bool, 1<<n)
		for r := range lawful[s] {
			lawful[s][r] = true
			for range Check(members(uint(s)), members(uint(r))) {
				lawful[s][r] = false
			}
		}
	}
	return func(yield func([]uint) bool) {
		var grow func(family []uint, from uint) bool
		grow = func(family []uint, from uint) bool {
			if len(family) > 0 && !yield(family) {
				return false
			}
			for s := from; s < 1<<n; s++ {
				fits := all(family, func(q uint) bool { return lawful[q][s] })
				if fits && !grow(append(family[:len(family):len(family)], s), s+1) {
					return false
				}
			}
			return true
		}
		grow(nil, 1)
	}
}

// The non-dominated coteries are the self-dual monotone functions; for n = 1 to
// 7 there are 1, 2, 4, 12, 81, 2646, 1422564 (OEIS A001206; Bioch and Ibaraki,
// "Generating and Approximating Nondominated Coteries", IEEE TPDS 6(9), 1995).
// Each coterie over n sites corresponds to a self-dual function of n+1. One of these
// functions has no quorum, so the numbers of coteries are the same sequence, shifted by
// one place and less one.
func TestCount(t *testing.T) {
	all := []int{1, 3, 11, 80, 2645}
	without := []int{1, 2, 4, 12, 81} // without the dominated ones
	for n := 1; n <= 5; n++ {
		count, non := 0, 0
		for q := range coteries(n) {
			c, err := New(twin{n, q}.slices()...)
			require.NoError(t, err)
			count++
			ok, err := nonDominated(c)
			require.NoError(t, err)
			if ok {
				non++
			}
		}
		require.Equal(t, all[n-1], count, "coteries over %d sites", n)
		require.Equal(t, without[n-1], non, "non-dominated coteries over %d sites", n)
	}
}

// A coterie is dominated, by the definition, if another coterie dominates it.
func TestDominatedByDefinition(t *testing.T) {
	for n := 1; n <= 4; n++ {
		var every []twin
		for q := range coteries(n) {
			every = append(every, twin{n, q})
		}
		for _, c := range every {
			dominated := slices.ContainsFunc(every, func(d twin) bool { return d.dominates(c) })
			non, err := nonDominated(must(New(c.slices()...)))
			require.NoError(t, err)
			require.Equal(t, !dominated, non, "%v", c)
		}
	}
}
