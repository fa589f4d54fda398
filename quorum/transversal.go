package quorum

import (
	"cmp"
	"iter"
	"math"
	"slices"
)

func (g *list) transversals() iter.Seq[set] {
	unbounded := math.MaxInt
	return g.hitting(&unbounded, nil)
}

// hitting enumerates minimal transversals depth first (Murakami and Uno, "Efficient
// Algorithms for Dualizing Large-Scale Hypergraphs", Discrete Applied Mathematics 170,
// 2014, the algorithm MMCS). A set is kept minimal on the way down: each chosen input has a
// quorum that only it meets (critical), and an input that would take the last such quorum
// from another is not chosen. A branch is left out if prune, which may be nil, says so. The
// search ends early when it has touched as many words as the budget has: that is below 0
// then.
func (g *list) hitting(budget *int, prune func(chosen, open, allowed set) bool) iter.Seq[set] {
	return func(yield func(set) bool) {
		chosen, allowed := newSet(len(g.column)), full(len(g.column))
		var descend func(open, once set) bool // quorums not yet met, and those met by one input
		descend = func(open, once set) bool {
			switch {
			case open.count() == 0:
				return yield(chosen)
			case *budget < 0:
				return false
			case prune != nil && prune(chosen, open, allowed):
				return true
			}
			branch, least := newSet(len(g.column)), math.MaxInt
			for q := range open.each() {
				*budget -= len(allowed)
				if n := g.family[q].common(allowed); n < least {
					least = n
					copy(branch, g.family[q])
				}
			}
			for w := range branch {
				branch[w] &= allowed[w]
				allowed[w] &^= branch[w]
			}
			for i := range branch.each() {
				unmet, single := slices.Clone(open), slices.Clone(once)
				for w, c := range g.column[i] {
					unmet[w], single[w] = open[w]&^c, once[w]&^c|open[w]&c
				}
				chosen.add(i)
				if g.critical(chosen, single) && !descend(unmet, single) {
					return false
				}
				chosen.remove(i)
				allowed.add(i)
			}
			return true
		}
		descend(full(len(g.family)), newSet(len(g.family)))
	}
}

// critical reports whether each chosen input is the only one in some quorum.
func (g *list) critical(chosen, once set) bool {
	for c := range chosen.each() {
		if g.column[c].common(once) == 0 {
			return false
		}
	}
	return true
}

// barrierWork bounds the search for a smallest transversal, in words compared.
const barrierWork = 1 << 27

// barrier searches for the cheapest transversal among the minimal ones, and leaves out
// what must cost as much as the best one so far.
func (g *list) barrier(cost []float64) (low, high float64) {
	if g.proved > 0 && slices.Min(cost) == slices.Max(cost) {
		low = float64(g.proved) * cost[0]
		return low, low
	}
	low = g.outlook(full(len(g.family)), full(len(cost)), cost)
	_, high = g.cheapest(cost) // every quorum is a transversal
	budget := barrierWork
	for t := range g.hitting(&budget, func(chosen, open, allowed set) bool {
		budget -= len(open) * len(cost)
		return low >= high || chosen.sum(cost)+g.outlook(open, allowed, cost) >= high
	}) {
		high = min(high, t.sum(cost))
	}
	if budget >= 0 {
		low = high
	}
	return low, high
}

// outlook returns what meeting the open quorums costs at least: inputs are taken
// as if no two of them met the same quorum, and in parts, the best first.
func (g *list) outlook(open, allowed set, cost []float64) float64 {
	best := 0.0 // the best ratio of quorums met to cost; if it stays, one can no longer be met
	for i := range allowed.each() {
		best = max(best, float64(open.common(g.column[i]))/cost[i])
	}
	return math.Ceil(float64(open.count())/best - tight)
}

// Dual yields the minimal transversals of c, each once: the sets of sites that meet every
// quorum, and lose that with any site removed. While all sites of one are down, there is no
// quorum. The family of them is the dual of c (its antiquorum set, in Garcia-Molina and
// Barbara, 1985), and the dual of the dual is c again. The order is the same each time.
//
// For a non-dominated coterie the dual is the coterie itself (Ibaraki and
// Kameda, "A Theory of Coteries: Mutual Exclusion in Distributed Systems", IEEE
// TPDS 4(7), 1993). For a dominated one it is no coterie.
//
// There may be exponentially many: stop when you have enough.
func (c Coterie[T]) Dual() iter.Seq[[]T] {
	return c.named(c.system().expand(len(c.sites), gate.transversals))
}

// Resilience returns the largest number of crashes that leave a quorum
// whichever the sites that crash: one less than the size of the smallest
// transversal (Barbara and Garcia-Molina, "The Vulnerability of Vote
// Assignments", ACM TOCS 4(3), 1986, and Naor and Wool, 1998).
//
// The two numbers are bounds. They are equal for every builder of this package at any size,
// and for any other coterie unless the search for the transversal, about a second of work,
// is cut short. The zero Coterie, which has no quorum to lose, has -1.
func (c Coterie[T]) Resilience() (least, most int) {
	low, high := c.system().bounds(len(c.sites), gate.barrier)
	return int(low) - 1, int(high) - 1
}

// gapWork bounds the search for a gap among written-out quorums, in words.
const gapWork = 1 << 29

// gap returns the first minimal transversal that contains no quorum: what meets every
// quorum leaves none among the others. If there is a gap, there is such a
// transversal inside it. Every other minimal transversal is itself a quorum, so one
// more of them than there are quorums is enough to look at.
func (g *list) gap() (set, error) {
	budget := gapWork
	for t := range g.hitting(&budget, nil) {
		if !g.holds(t) {
			return slices.Clone(t), nil
		}
		budget -= len(g.family) * len(t)
	}
	if budget < 0 {
		return nil, refuse(ErrTooLarge, "the search for a gap was cut short; ask about a smaller coterie")
	}
	return nil, nil
}

// gap adds the sites of a gap to side, and reports whether there is one. If a gate has one,
// the gates above it can be made to depend on that gate alone: the rest of a quorum that
// contains it is put on this side, everything else on the other, and so on up.
func (s *system) gap(side set) (found bool, err error) {
	if s.gate == nil {
		return false, nil
	}
	for i, x := range s.in {
		found, e := x.gap(side)
		if found {
			cost := same(len(s.in), 1.0)
			cost[i] = -float64(len(s.in))
			q, _ := s.gate.cheapest(cost)
			q.remove(i)
			s.below(q, side)
			return true, nil
		}
		err = cmp.Or(err, e) // another gate may yet have one that is found
	}
	local, e := s.gate.gap()
	s.below(local, side)
	return local != nil, cmp.Or(err, e)
}

func (s *system) below(inputs, side set) {
	for i := range inputs.each() {
		s.in[i].mark(side)
	}
}

// Gap returns sites that neither contain a quorum of c nor leave one among the other sites
// of c: when the group splits along them, neither side can go on. It is the same set each
// time. If it is nil, c is non-dominated: no other coterie has a quorum whenever c has, and
// sometimes when c has none (Garcia-Molina and Barbara, 1985, theorem 2.1; by the dual,
// Ibaraki and Kameda, 1993). A dominated coterie gives availability away for nothing.
//
// For written-out quorums it is a search that may take exponential time; it is
// cut short with ErrTooLarge after about a second. The zero Coterie has no
// quorum anywhere: its gap is empty, but not nil.
func (c Coterie[T]) Gap() ([]T, error) {
	side := newSet(len(c.sites))
	if found, err := c.system().gap(side); !found {
		return nil, err
	}
	return c.members(side), nil
}
