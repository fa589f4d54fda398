package quorum

import (
	"cmp"
	"math"
	"strconv"
)

// Grid returns the coterie of Maekawa's grid: the sites are laid row by row into the given
// number of columns (the last row may be short), and each site has a quorum that is its row
// and its column. Two of them meet where the row of one crosses the column of the other; if
// one crossing is missing in the last row, the other is not. With 0 columns there are
// ceil(sqrt(n)), and the quorums smallest: at most 2*ceil(sqrt(n))-1 sites.
//
// Maekawa, "A sqrt(N) Algorithm for Mutual Exclusion in Decentralized Systems", ACM TOCS
// 3(2), 1985, where N is no size of a projective plane.
//
// In a full grid of r > 1 rows and c > 1 columns there are r*c quorums of r+c-1
// sites, the load is (r+c-1)/(r*c) and the resilience min(r, c)-1. With a short
// row some quorums may contain others; those are dropped, and every site still
// occurs in one. A grid is dominated for every n above 1.
//
// It refuses negative columns (ErrSize).
func Grid[T cmp.Ordered](columns int, sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	n := len(sites)
	switch {
	case columns < 0:
		return Coterie[T]{}, refuse(ErrSize, "a grid of "+strconv.Itoa(columns)+" columns; give it at least one, or 0 for about as many as rows")
	case columns == 0:
		columns = int(math.Ceil(math.Sqrt(float64(n))))
	}
	columns = min(columns, n)
	family := newSets(n, n)
	for i, q := range family {
		start := i - i%columns
		for j := start; j < min(start+columns, n); j++ {
			q.add(j)
		}
		for j := i % columns; j < n; j += columns {
			q.add(j)
		}
	}
	grid := written(minimal(family), leaves(n))
	if g, ok := grid.gate.(*list); ok {
		g.proved = gridBarrier(n, columns)
	}
	return finish(grid, sites), nil
}

// gridBarrier returns the size of a smallest transversal of a grid. If a set
// misses a row and a column, it misses the quorum of their crossing. So it has a
// site of every row, or of every column; or, as the last row lacks crossings, of
// every row but that and of every column that reaches down to it.
func gridBarrier(n, columns int) int {
	rows, last := (n+columns-1)/columns, n%columns
	if last == 0 {
		return min(rows, columns)
	}
	return min(rows, columns, max(rows-1, last))
}
