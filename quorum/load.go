package quorum

import (
	"math"
	"slices"
)

// The load of a coterie is how busy its busiest site must be: a strategy picks
// quorums with some probabilities, a site is as busy as the quorums that contain
// it are likely together, and the load is the least that any strategy makes the
// busiest site. Its inverse, the capacity, is how many times a group of sites,
// each good for one request per second, can serve one request per second.
//
// Naor and Wool, "The Load, Capacity, and Availability of Quorum Systems", SIAM
// Journal on Computing 27(2), 1998. With c the size of a smallest quorum and n
// sites, the load is at least 1/c and at least c/n, and so at least 1/sqrt(n).
//
// It is found gate by gate, as the capacity: give each quorum a rate so that no input is
// used more often than its own capacity allows, and let the sum be greatest. That is a
// linear program with a row for each input and a column for each quorum, too many to write
// down; but the simplex method asks for one column at a time, a cheapest quorum at the
// present prices of the inputs. Prices also bound the answer from above: if every quorum
// costs at least 1, no rates sum to more than the prices, each times its input's capacity.

// Limits of the linear programs.
const (
	programInputs = 256     // inputs of a gate beyond which none is begun
	programWork   = 1 << 30 // multiplications after which they are cut short
	programStep   = 1 << 12 // those of a step at least, so that steps are bounded too
	tight         = 1e-9    // a relative difference that counts as none
)

// Load returns bounds of the load of c, each with a proof: low by prices of the sites, high
// by a strategy. They are equal, and the load exact, where all quorums are alike
// (majorities, full grids, planes), for trees, hierarchies and triangular walls, and for
// any other coterie of up to about a hundred sites. Where the linear program would take
// more than about a second they may differ, and by much where a gate has more than 256
// inputs, so that it is not begun. Bounds that differ by less than 1e-9 of their value are
// given as equal; for some sixty sites the error is about 1e-12. The zero Coterie has 0.
//
// The capacity of c is one over its load.
func (c Coterie[T]) Load() (low, high float64) {
	if c.under == nil {
		return 0, 0
	}
	budget := programWork
	return c.under.bounds(len(c.sites), func(g gate, in []float64) (low, high float64) {
		room := make([]float64, len(in)) // the capacity of each input
		total := 0.0
		for i, load := range in {
			room[i] = 1 / load
			total += room[i]
			high = max(high, g.busy(i)*load)
		}
		_, size := g.cheapest(same(len(in), 1.0))
		_, least := g.cheapest(room) // the prices are 1 in a quorum, which all others meet
		low = max(size/total, 1/least)
		if high > low*(1+tight) && len(in) <= programInputs {
			low, high = program(g, room, low, high, &budget)
		}
		if high <= low*(1+tight) {
			low = high
		}
		return low, high
	})
}

// program solves the linear program by the revised simplex method, starting from
// the basis in which every input is idle. It narrows the bounds that are known.
func program(g gate, room []float64, low, high float64, budget *int) (float64, float64) {
	n := len(room)
	lp := make(simplex, n)
	for i := range lp {
		lp[i].number = make([]float64, n+1)
		lp[i].number[0], lp[i].number[i+1] = room[i], 1
	}
	for ; *budget > 0; *budget -= max(programStep, 2*n*n) {
		prices, total := lp.prices(), 0.0
		if lowest := slices.Min(prices); lowest < -tight { // that input is better left with room
			idle := newSet(n)
			idle.add(slices.Index(prices, lowest))
			if !lp.enter(idle, nil) {
				break
			}
			continue
		}
		for i := range prices {
			prices[i] = max(0, prices[i])
			total += prices[i] * room[i]
		}
		q, cost := g.cheapest(prices)
		if total > 0 {
			low = max(low, cost/total)
		}
		if cost >= 1-tight || !lp.enter(q, q) {
			break
		}
	}
	return low, min(high, lp.busiest(room))
}

// A simplex maximizes the sum of the rates x(q) of quorums, subject to: for each
// input, the rates of the quorums that contain it sum to at most its room (Dantzig's
// method, revised: it keeps the inverse of the basis, not the tableau).
//
// Mostly every room is the same, so that ties abound, and a careless choice among them can
// go around forever. The lexicographic rule of enter (Dantzig, Orden and Wolfe, 1955) cannot.
type simplex []row

// A row is a basic variable: the rate of a quorum or, if that is nil, the room left to
// an input. Its first number is the value, the others are its row of the inverse.
type row struct {
	quorum set
	number []float64
}

// prices returns the dual variables: the sum of the rows of the inverse that are quorums.
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

// before compares rows, divided by their entries in the column, as words in a dictionary.
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
