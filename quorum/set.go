package quorum

import (
	"iter"
	"math/bits"
)

// A set is a set of small numbers (sites, inputs of a gate, or quorums), one
// bit each. Two sets that meet in an operation have the same length.
type set []uint64

func words(n int) int { return (n + 63) / 64 }

func newSet(n int) set { return make(set, words(n)) }

// full returns {0, ..., n-1}.
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

func (s set) clone() set { return append(set{}, s...) }

func (s set) empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

func (s set) count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// meets reports whether s and t share a member.
func (s set) meets(t set) bool {
	for i, w := range s {
		if w&t[i] != 0 {
			return true
		}
	}
	return false
}

// within reports whether every member of s is in t.
func (s set) within(t set) bool {
	for i, w := range s {
		if w&^t[i] != 0 {
			return false
		}
	}
	return true
}

// common counts the members that s and t share.
func (s set) common(t set) int {
	n := 0
	for i, w := range s {
		n += bits.OnesCount64(w & t[i])
	}
	return n
}

// drop removes every member of t from s.
func (s set) drop(t set) {
	for i, w := range t {
		s[i] &^= w
	}
}

// compare orders sets of one length, neither of which contains the other, by
// their members read in ascending order, as words in a dictionary: {0,1} comes
// before {0,2,3}, and that before {1,2}.
func (s set) compare(t set) int {
	for i, w := range s {
		diff := w ^ t[i]
		switch low := diff & -diff; { // the first member that only one of them has
		case diff == 0:
		case w&low != 0:
			return -1
		default:
			return 1
		}
	}
	return 0
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
