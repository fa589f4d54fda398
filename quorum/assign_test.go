package quorum

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// Report names the conditions that are broken, and the offenders.
func TestReport(t *testing.T) {
	for _, c := range []struct {
		name    string
		quorums [][]int // of sites 0, 1, ...
		want    Report[int]
	}{
		{"all", [][]int{{0, 1}, {1, 2}, {0, 2}}, Report[int]{Size: 2, Duty: 2}},
		{"not M1", [][]int{{0, 1}, {0, 1}, {2, 3}, {2, 3}}, Report[int]{Size: 2, Duty: 2, Disjoint: [][2]int{{0, 2}, {0, 3}, {1, 2}, {1, 3}}}},
		{"not M2", [][]int{{1, 2}, {0, 2}, {0, 1}}, Report[int]{Size: 2, Duty: 2, Outside: []int{0, 1, 2}}},
		{"not M3, not M4", [][]int{{0, 1}, {0, 1}, {0, 1, 2}}, Report[int]{Size: 2, Duty: 3, Unequal: []int{2}, Unbalanced: []int{2}}},
		{"not M4", [][]int{{0, 1}, {0, 1}, {0, 2}}, Report[int]{Size: 2, Duty: 1, Unbalanced: []int{0, 1}}},
	} {
		entries := []Entry[int]{}
		for site, q := range c.quorums {
			entries = append(entries, Entry[int]{site, q})
		}
		slices.Reverse(entries)
		a, err := NewAssignment(entries...)
		require.NoError(t, err)
		r := a.Report()
		require.Equal(t, c.want, r, c.name)
	}
	a, err := NewAssignment(Entry[string]{"a", []string{"a"}}, Entry[string]{"b", []string{"b"}}, Entry[string]{"c", []string{"a", "b"}})
	require.NoError(t, err)
	require.Equal(t, "M1 (any two share a site): no: {a,b}\n"+
		"M2 (own membership): no: {c}\n"+
		"M3 (equal size 1): no: {c}\n"+
		"M4 (equal duty 2): no: {c}\n", a.Report().String())
	a, err = NewAssignment(Entry[string]{"a", []string{"a"}}, Entry[string]{"b", []string{"b"}}, Entry[string]{"c", []string{"c"}})
	require.NoError(t, err)
	require.Contains(t, a.Report().String(), "no: {a,b},{a,c},{b,c}\n")
}

// Every builder, every n: M1 always; M2 for each site that occurs; and all four
// for planes, full grids and majorities.
func TestAssign(t *testing.T) {
	most := 60
	if quicktest.On() {
		most = 30
	}
	for _, k := range shapes() {
		for n := 1; n <= most; n += 1 + n/10 {
			c, err := k.Build(ints(n)...)
			if k.Name == "fpp" && err != nil {
				continue
			}
			a, err := c.Assign(ints(n)...)
			require.NoError(t, err)
			r := a.Report()
			require.Empty(t, r.Disjoint, "%s of %d", k.Name, n)
			require.Equal(t, ints(n), a.sites)
			for _, s := range r.Outside {
				require.NotContains(t, c.Sites(), s, "%s of %d", k.Name, n)
			}
			for s, q := range a.All() {
				require.True(t, isQuorum(c, q...))
				require.Equal(t, q, a.Quorum(s))
			}
			again, err := c.Assign(ints(n)...)
			require.NoError(t, err)
			require.Equal(t, a, again)
			if k.Name == "fpp" || k.Name == "majority" || k.Name == "grid" && (n == 1 || n == 4 || n == 9 || n == 16 || n == 25) {
				require.Equal(t, Report[int]{Size: smallest(c), Duty: smallest(c)}, r, "%s of %d", k.Name, n)
			}
		}
	}
}

// All four conditions for every plane and majority, and for full grids of any
// shape.
func TestAssignIsMaekawas(t *testing.T) {
	check := func(c Coterie[int]) {
		a, err := c.Assign()
		require.NoError(t, err)
		require.Equal(t, Report[int]{Size: smallest(c), Duty: smallest(c)}, a.Report(), "%v", c)
	}
	for _, n := range []int{7, 13, 21, 31, 57, 73, 91, 133, 183, 273, 993} {
		check(must(Plane(ints(n)...)))
	}
	for n := 1; n <= 100; n++ {
		check(must(Majority(ints(n)...)))
	}
	for rows := 1; rows <= 8; rows++ {
		for columns := 1; columns <= 8; columns++ {
			check(must(Grid(columns, ints(rows*columns)...)))
		}
	}
}

// The balance for ragged shapes: no site has more than three times the mean duty.
func TestAssignIsBalanced(t *testing.T) {
	for n := 5; n <= 100; n++ {
		for _, c := range []Coterie[int]{must(Grid(0, ints(n)...)), must(Wall(nil, ints(n)...))} {
			a, err := c.Assign()
			require.NoError(t, err)
			duty, sum := make([]int, n), 0
			for _, q := range a.All() {
				sum += len(q)
				for _, s := range q {
					duty[s]++
				}
			}
			require.LessOrEqual(t, slices.Max(duty)*n, 3*sum, "n = %d: %v", n, c)
		}
	}
}

// Assign gives a quorum also to a site that is in none.
func TestAssignOthers(t *testing.T) {
	a, err := must(Majority("centre")).Assign("x", "centre", "y")
	require.NoError(t, err)
	require.Equal(t, []string{"centre", "x", "y"}, a.sites)
	require.Equal(t, []string{"centre"}, a.Quorum("y"))
	require.Nil(t, a.Quorum("stranger"))
	require.Equal(t, []string{"x", "y"}, a.Report().Outside)
}

// Assign against all assignments: for small coteries, no assignment with own membership
// lowers the greatest duty by more than one.
func TestAssignAgainstAll(t *testing.T) {
	for q := range coteries(4) {
		c := must(New(twin{4, q}.slices()...))
		sites := c.Sites()
		best := len(sites)
		var try func(i int, duty [4]int)
		try = func(i int, duty [4]int) {
			if i == len(sites) {
				best = min(best, slices.Max(duty[:]))
				return
			}
			for _, s := range q {
				if s>>sites[i]&1 == 0 {
					continue
				}
				more := duty
				for _, m := range members(s) {
					more[m]++
				}
				try(i+1, more)
			}
		}
		try(0, [4]int{})
		a, err := c.Assign()
		require.NoError(t, err)
		var duty [4]int
		for _, members := range a.All() {
			for _, m := range members {
				duty[m]++
			}
		}
		require.LessOrEqual(t, slices.Max(duty[:]), best+1, "%v", c)
	}
}
