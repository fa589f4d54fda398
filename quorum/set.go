package quorum

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// A set is a set of small numbers (sites, inputs of a gate, or quorums), one
// bit each. Two sets that meet in an operation have the same length.
type set []uint64

func words(n int) int { return max(1, (n+63)/64) }

func newSet(n int) set { return make(set, words(n)) }

// newSets returns k empty sets, in one piece of memory.
func newSets(k, n int) []set {
	return slices.Collect(slices.Chunk(make(set, k*words(n)), words(n)))
}

func full(n int) set {
	s := newSet(n)
	for i := range n {
		s.add(i)
	}
	return s
}

func (s set) has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }
func (s set) add(i int)      { s[i>>6] |= 1 << (i & 63) }
func (s set) remove(i int)   { s[i>>6] &^= 1 << (i & 63) }

func (s set) count() int { return s.common(s) }

func (s set) common(t set) int {
	n := 0
	for i, w := range s {
		n += bits.OnesCount64(w & t[i])
	}
	return n
}

func (s set) within(t set) bool {
	for i, w := range s {
		if w&^t[i] != 0 {
			return false
		}
	}
	return true
}

func (s set) sum(cost []float64) float64 {
	sum := 0.0
	for i := range s.each() {
		sum += cost[i]
	}
	return sum
}

// compare orders two sets of the same length as words in a dictionary: {0,1} comes before {0,2,3},
// and that before {1,2}. Neither set may contain the other.
func (s set) compare(t set) int {
	return slices.CompareFunc(t, s, func(a, b uint64) int { return cmp.Compare(bits.Reverse64(a), bits.Reverse64(b)) })
}

// each yields the members in ascending order.
func (s set) each() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i<<6 | bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// numbered returns the sets of the sites' places in names, which is sorted, less any NaN.
func numbered[T cmp.Ordered](quorums [][]T, names []T) []set {
	family := newSets(len(quorums), len(names))
	for k, q := range quorums {
		for _, site := range q {
			if i, ok := slices.BinarySearch(names, site); ok {
				family[k].add(i)
			}
		}
	}
	return family
}

func holds(family []set, up set) bool {
	return slices.ContainsFunc(family, func(s set) bool { return s.within(up) })
}

// minimal returns the sets that contain no other, each once.
func minimal(family []set) []set {
	var kept []set
	for _, s := range slices.SortedStableFunc(slices.Values(family), func(s, t set) int { return s.count() - t.count() }) {
		if !holds(kept, s) {
			kept = append(kept, s)
		}
	}
	return kept
}

// columns returns, for each of n members, the set of those sets that contain it.
func columns(family []set, n int) []set {
	t := newSets(n, len(family))
	for i, s := range family {
		for m := range s.each() {
			t[m].add(i)
		}
	}
	return t
}
