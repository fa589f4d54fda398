package quorum

import "slices"

// A simplex maximizes the sum of the rates x(q) of quorums, subject to: for each
// input, the rates of the quorums that contain it sum to at most its room (Dantzig's
// method, revised: it keeps the inverse of the basis, not the tableau).
//
// Mostly every room is the same, so that ties abound, and a careless choice among
// them can go around forever. Ties are therefore broken by the lexicographic rule
// (Dantzig, Orden and Wolfe, 1955), which cannot.
type simplex struct {
	n       int
	inverse []float64 // of the basis, n by n, by rows
	value   []float64 // of the basic variables
	basis   []set     // the quorum of each row, or nil if the row is slack
}

func newSimplex(room []float64) *simplex {
	n := len(room)
	lp := &simplex{n: n, inverse: make([]float64, n*n), value: slices.Clone(room), basis: make([]set, n)}
	for i := range n {
		lp.inverse[i*n+i] = 1
	}
	return lp
}

func (lp *simplex) row(i int) []float64 { return lp.inverse[i*lp.n : (i+1)*lp.n] }

// prices returns the dual variables: the rows of the inverse whose variable
// counts in the sum, added up.
func (lp *simplex) prices() []float64 {
	prices := make([]float64, lp.n)
	for i, q := range lp.basis {
		if q == nil {
			continue
		}
		for j, v := range lp.row(i) {
			prices[j] += v
		}
	}
	return prices
}

// enter brings a quorum into the basis or, if that is nil, the room left to an
// input. It returns false if there is no row that it could take, which only
// rounding can bring about.
func (lp *simplex) enter(q set, input int) bool {
	column := make([]float64, lp.n) // what enters, in terms of the basis
	for i := range column {
		if q == nil {
			column[i] = lp.row(i)[input]
			continue
		}
		for j := range q.each() {
			column[i] += lp.row(i)[j]
		}
	}
	leave := -1
	for i, c := range column {
		if c > tight && (leave < 0 || lp.before(i, leave, column)) {
			leave = i
		}
	}
	if leave < 0 {
		return false
	}
	pivot := lp.row(leave)
	for j := range pivot {
		pivot[j] /= column[leave]
	}
	lp.value[leave] /= column[leave]
	for i, c := range column {
		if i == leave || c == 0 {
			continue
		}
		for j, v := range pivot {
			lp.row(i)[j] -= c * v
		}
		lp.value[i] = max(0, lp.value[i]-c*lp.value[leave])
	}
	lp.basis[leave] = q
	return true
}

// before compares rows i and k, each with its value in front and divided by its
// entry in the column, as words in a dictionary.
func (lp *simplex) before(i, k int, column []float64) bool {
	if a, b := lp.value[i]/column[i], lp.value[k]/column[k]; differ(a, b) {
		return a < b
	}
	a, b := lp.row(i), lp.row(k)
	for j := range a {
		if x, y := a[j]/column[i], b[j]/column[k]; differ(x, y) {
			return x < y
		}
	}
	return i < k
}

func differ(a, b float64) bool { return a-b > 1e-12 || b-a > 1e-12 }

// busiest returns how busy the busiest input is if each quorum of the basis is
// chosen in proportion to its rate. It is computed afresh from the quorums, so
// that it holds however the inverse may have been rounded.
func (lp *simplex) busiest(room []float64) float64 {
	busy, total := make([]float64, lp.n), 0.0
	for i, q := range lp.basis {
		if q == nil || lp.value[i] <= 0 {
			continue
		}
		total += lp.value[i]
		for input := range q.each() {
			busy[input] += lp.value[i] / room[input]
		}
	}
	if total == 0 {
		return inf
	}
	return slices.Max(busy) / total
}
