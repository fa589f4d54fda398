package quorum

import (
	"cmp"
	"iter"
	"slices"
)

// rows is the gate of the grid protocol: a quorum is one whole row and one
// member of every other row. Two of them meet in the row that either holds
// whole. A set of inputs meets every quorum exactly if it contains a whole row
// (that no quorum can then do without) or a member of every row (so that no row
// is left whole).
//
// If some row is a single input, that row is whole by being there, and a quorum
// is one member of every row. There are at least two rows.
type rows struct {
	start  []int // row r is start[r], ..., start[r+1]-1
	single bool  // some row is a single input
}

func (g *rows) size() int { return g.start[len(g.start)-1] }

func (g *rows) len() int { return len(g.start) - 1 }

func (g *rows) holds(up set) bool {
	whole := false
	for r := range g.len() {
		n := 0
		for i := g.start[r]; i < g.start[r+1]; i++ {
			if up.has(i) {
				n++
			}
		}
		if n == 0 {
			return false
		}
		whole = whole || n == g.start[r+1]-g.start[r]
	}
	return whole
}

func (g *rows) quorums() iter.Seq[set] {
	if g.single {
		return g.picks(-1)
	}
	return func(yield func(set) bool) {
		for r := range g.len() {
			for s := range g.picks(r) {
				if !yield(s) {
					return
				}
			}
		}
	}
}

func (g *rows) transversals() iter.Seq[set] {
	return func(yield func(set) bool) {
		for r := range g.len() {
			row := newSet(g.size())
			for i := g.start[r]; i < g.start[r+1]; i++ {
				row.add(i)
			}
			if !yield(row) {
				return
			}
		}
		if g.single {
			return // a member of every row contains the single one: not minimal
		}
		for s := range g.picks(-1) {
			if !yield(s) {
				return
			}
		}
	}
}

// picks yields the sets of one member of each row, and the whole of row whole
// unless it is -1.
func (g *rows) picks(whole int) iter.Seq[set] {
	return func(yield func(set) bool) {
		acc := newSet(g.size())
		var pick func(r int) bool
		pick = func(r int) bool {
			if r == g.len() {
				return yield(acc)
			}
			if r == whole {
				for i := g.start[r]; i < g.start[r+1]; i++ {
					acc.add(i)
				}
				return pick(r + 1)
			}
			for i := g.start[r]; i < g.start[r+1]; i++ {
				acc.add(i)
				if !pick(r + 1) {
					return false
				}
				acc.remove(i)
			}
			return true
		}
		pick(0)
	}
}

func (g *rows) count(ways []int, with int) int {
	if g.single {
		return g.countPicks(ways, with, -1)
	}
	total := 0
	for whole := range g.len() {
		total = plus(total, g.countPicks(ways, with, whole))
	}
	return total
}

// countPicks counts what picks yields, or what of it contains an input.
func (g *rows) countPicks(ways []int, with, whole int) int {
	n := 1
	for r := range g.len() {
		row := ways[g.start[r]:g.start[r+1]]
		of := 0
		switch {
		case r == whole:
			of = 1
			for _, w := range row {
				of = times(of, w)
			}
		case g.start[r] <= with && with < g.start[r+1]:
			of = ways[with]
		default:
			for _, w := range row {
				of = plus(of, w)
			}
		}
		n = times(n, of)
	}
	return n
}

func (g *rows) cheapest(cost []float64, with int) (set, float64) {
	pick := make([]int, g.len()) // the cheapest of each row
	sum := make([]float64, g.len())
	base := 0.0
	for r := range pick {
		row := cost[g.start[r]:g.start[r+1]]
		for i, c := range row {
			sum[r] += c
			if c < row[pick[r]] {
				pick[r] = i
			}
		}
		pick[r] += g.start[r]
		if g.start[r] <= with && with < g.start[r+1] {
			pick[r] = with
		}
		base += cost[pick[r]]
	}
	q := newSet(g.size())
	for r := range pick {
		q.add(pick[r])
	}
	if g.single {
		return q, base
	}
	whole, least := 0, inf
	for r := range pick {
		if c := base - cost[pick[r]] + sum[r]; c < least {
			whole, least = r, c
		}
	}
	for i := g.start[whole]; i < g.start[whole+1]; i++ {
		q.add(i)
	}
	return q, least
}

func (g *rows) barrier(cost []int) (low, high int) {
	across, least := 0, maxInt
	for r := range g.len() {
		row := cost[g.start[r]:g.start[r+1]]
		sum := 0
		for _, c := range row {
			sum = plus(sum, c)
		}
		least = min(least, sum)
		across = plus(across, slices.Min(row))
	}
	least = min(least, across)
	return least, least
}

// chance: every row has a member that is up, less the case that every row has
// one and none is whole (Cheung, Ammar and Ahamad, 1992, for rows of equal
// length and one p).
func (g *rows) chance(up []float64) (float64, bool) {
	hit, hitNotWhole := 1.0, 1.0
	for r := range g.len() {
		allUp, allDown := 1.0, 1.0
		for _, p := range up[g.start[r]:g.start[r+1]] {
			allUp *= p
			allDown *= 1 - p
		}
		hit *= 1 - allDown
		hitNotWhole *= 1 - allDown - allUp
	}
	return hit - hitNotWhole, true
}

// gap: a whole row has no quorum, for it misses the others, and leaves none.
func (g *rows) gap() (set, error) {
	row := newSet(g.size())
	for i := g.start[0]; i < g.start[1]; i++ {
		row.add(i)
	}
	return row, nil
}

// RowGrid returns the coterie of the sets of one whole row and one site of every
// other row, the sites being laid row by row into the given number of columns; the last
// row may be short. A quorum has no more sites than in [Grid], and there are many
// more quorums to choose from, so that a crash inside a row seldom matters: one
// row whole is enough, and any site of each other will do.
//
// Cheung, Ammar and Ahamad, "The Grid Protocol: A High Performance Scheme for
// Maintaining Replicated Data", IEEE TKDE 4(6), 1992 (first at ICDE 1990), the
// write quorums, rows and columns exchanged. Where rows below suffice instead of
// all other rows, quorums are smaller still: that is [Wall] with equal widths,
// which dominates this.
//
// If the last row is a single site, it is whole whenever it is up: then a quorum is
// one site of every row. If there is only one row, that row is the only quorum.
//
// It refuses columns below 1 and no sites (ErrSize), a site given twice
// (ErrDuplicate), and more than 8192 sites (ErrTooLarge).
func RowGrid[T cmp.Ordered](columns int, sites ...T) (Coterie[T], error) {
	if err := gridded(columns, sites); err != nil {
		return Coterie[T]{}, err
	}
	n := len(sites)
	columns = min(columns, n)
	var a assembly
	if columns == 1 || columns == n {
		return finish(&a, a.voting(same(n, 1), n, leaves(n)), sites), nil
	}
	g := &rows{single: n%columns == 1}
	for i := 0; i < n; i += columns {
		g.start = append(g.start, i)
	}
	g.start = append(g.start, n)
	return finish(&a, a.add(g, leaves(n)), sites), nil
}
