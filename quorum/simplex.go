package quorum

import (
	"math"
	"slices"
)

// A simplex maximizes the sum of the rates x(q) of quorums, subject to: for each
// input, the rates of the quorums that contain it sum to at most its room (Dantzig's
// method, revised: it keeps the inverse of the basis, not the tableau).
//
// Mostly every room is the same, so that ties abound, and a careless choice among
// them can go around forever. Ties are therefore broken by the lexicographic rule
// (Dantzig, Orden and Wolfe, 1955), which cannot.
type simplex []row

// A row is a basic variable: the rate of a quorum or, if that is nil, the room left to
// an input. Its first number is the value, the others are its row of the inverse.
type row struct {
	quorum set
	number []float64
}

// prices returns the dual variables: the rows of the inverse whose variable
// counts in the sum, added up.
func (lp simplex) prices() []float64 {
	prices := make([]float64, len(lp))
	for _, r := range lp {
		if r.quorum != nil {
			for j, v := range r.number[1:] {
				prices[j] += v
			}
		}
	}
	return prices
}

// enter brings a variable into the basis that uses some inputs: a quorum, or nil for the
// room left to one input. It returns false if there is no row that it could take, which
// only rounding can bring about.
func (lp simplex) enter(uses, quorum set) bool {
	column := make([]float64, len(lp)) // what enters, in terms of the basis
	leave := -1
	for i, r := range lp {
		for j := range uses.each() {
			column[i] += r.number[1+j]
		}
		if column[i] > tight && (leave < 0 || before(r.number, lp[leave].number, column[i], column[leave])) {
			leave = i
		}
	}
	if leave < 0 {
		return false
	}
	pivot := lp[leave].number
	for j := range pivot {
		pivot[j] /= column[leave]
	}
	for i, c := range column {
		if i == leave || c == 0 {
			continue
		}
		for j, v := range pivot {
			lp[i].number[j] -= c * v
		}
		lp[i].number[0] = max(0, lp[i].number[0])
	}
	lp[leave].quorum = quorum
	return true
}

// before compares rows, each divided by its entry in the column, as words in a
// dictionary.
func before(a, b []float64, entryA, entryB float64) bool {
	for j := range a {
		if x, y := a[j]/entryA, b[j]/entryB; math.Abs(x-y) > 1e-12 {
			return x < y
		}
	}
	return false
}

// busiest returns how busy the busiest input is if each quorum of the basis is
// chosen in proportion to its rate. It is computed afresh from the quorums, so
// that it holds however the inverse may have been rounded.
func (lp simplex) busiest(room []float64) float64 {
	busy, total := make([]float64, len(lp)), 0.0
	for _, r := range lp {
		if r.quorum == nil {
			continue
		}
		total += r.number[0]
		for input := range r.quorum.each() {
			busy[input] += r.number[0] / room[input]
		}
	}
	if total == 0 {
		return inf
	}
	return slices.Max(busy) / total
}
