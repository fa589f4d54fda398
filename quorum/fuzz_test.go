package quorum

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// fuzzed reads bytes as a family of subsets of n sites.
func fuzzed(n uint8, data []byte) twin {
	t := twin{1 + int(n%7), nil}
	for _, b := range data[:min(len(data), 12)] {
		t.quorums = append(t.quorums, uint(b)%(1<<t.n))
	}
	return t
}

// Any family, against the twin: validator, minimizer and, if it is a
// coterie, every measure.
func FuzzFamily(f *testing.F) {
	f.Add(uint8(2), []byte{3, 5, 6})
	f.Add(uint8(6), []byte{7, 25, 42, 52, 76, 82, 97})
	f.Add(uint8(3), []byte{0, 15, 15})
	f.Fuzz(func(t *testing.T, n uint8, data []byte) {
		fuzzed(n, data).compare(t)
	})
}

// Minimize makes a coterie of any family that it accepts, and its measures are right.
func FuzzMinimize(f *testing.F) {
	f.Add(uint8(4), []byte{7, 11, 13, 31, 14})
	f.Fuzz(func(t *testing.T, n uint8, data []byte) {
		family := fuzzed(n, data)
		c, err := Minimize(family.slices()...)
		if err != nil {
			return
		}
		twin{family.n, masks(quorumsOf(t, c))}.measure(t, c)
	})
}

// Votes of any kind are refused or reduce to what the twin finds.
func FuzzWeighted(f *testing.F) {
	f.Add(3, []byte{2, 1, 1, 1})
	f.Add(0, []byte{})
	f.Add(200, []byte{255, 100, 1})
	f.Fuzz(func(t *testing.T, threshold int, data []byte) {
		data = data[:min(len(data), 8)]
		votes := []Vote[int]{}
		for i, b := range data {
			votes = append(votes, Vote[int]{i, int(int8(b))})
		}
		c, err := Weighted(threshold, votes...)
		total := 0
		for _, v := range votes {
			total += v.Votes
		}
		lawful := len(votes) > 0 && total > 0 && threshold > total/2 && threshold <= total &&
			!slices.ContainsFunc(votes, func(v Vote[int]) bool { return v.Votes < 0 })
		require.Equal(t, lawful, err == nil, "%v", err)
		if err != nil {
			return
		}
		all := twin{len(votes), nil}
		want := all.minimal(func(s uint) bool {
			sum := 0
			for _, i := range members(s) {
				sum += votes[i].Votes
			}
			return sum >= threshold
		})
		require.Equal(t, want, sorted(masks(quorumsOf(t, c))))
		twin{len(votes), want}.measure(t, c)
	})
}

// Walls of any widths, against the definition.
func FuzzWall(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add([]byte{3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		widths, starts, n := []int{}, []int{}, 0
		for _, b := range data {
			if w := int(b % 5); n+w <= 9 {
				widths, starts = append(widths, w), append(starts, n)
				n += w
			}
		}
		c, err := Wall(widths, ints(n)...)
		if n == 0 || slices.Contains(widths, 0) {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		want := twin{n, nil}.minimal(func(s uint) bool {
			for r := range widths {
				whole, below := true, true
				for i := starts[r]; i < starts[r]+widths[r]; i++ {
					whole = whole && s>>i&1 != 0
				}
				for b := r + 1; b < len(widths); b++ {
					below = below && s>>starts[b]&(1<<widths[b]-1) != 0
				}
				if whole && below {
					return true
				}
			}
			return false
		})
		require.Equal(t, want, sorted(masks(quorumsOf(t, c))))
		twin{n, want}.measure(t, c)
	})
}

// Any assignment is refused, or its report agrees with the definition of the conditions.
func FuzzAssignment(f *testing.F) {
	f.Add([]byte{3, 6, 5})
	f.Add([]byte{1, 1, 8})
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, n := []Entry[int]{}, min(len(data), 8)
		for i, b := range data[:n] {
			entries = append(entries, Entry[int]{i, members(uint(b))})
		}
		a, err := NewAssignment(entries...)
		unlawful := n == 0
		for _, b := range data[:n] {
			unlawful = unlawful || b == 0 || int(b) >= 1<<n
		}
		require.Equal(t, unlawful, err != nil)
		if err != nil {
			return
		}
		r := a.Report()
		m1, m2, m3 := true, true, true
		duty := make([]int, n)
		for i, b := range data[:n] {
			m2 = m2 && b>>i&1 != 0
			for _, c := range data[:n] {
				m1 = m1 && b&c != 0
			}
			m3 = m3 && len(members(uint(b))) == len(members(uint(data[0])))
			for _, s := range members(uint(b)) {
				duty[s]++
			}
		}
		m4 := !slices.ContainsFunc(duty, func(d int) bool { return d != duty[0] })
		require.Equal(t, []bool{m1, m2, m3, m4}, []bool{len(r.Disjoint) == 0, len(r.Outside) == 0, len(r.Unequal) == 0, len(r.Unbalanced) == 0})
	})
}
