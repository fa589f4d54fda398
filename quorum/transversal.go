package quorum

import (
	"iter"
	"math"
	"slices"
)

// A transversal is a set of sites that meets every quorum: while all of them are
// down, there is no quorum, whichever other sites are up. So the smallest transversal
// says how many crashes a coterie survives for certain. The minimal transversals
// form the dual of the coterie. Since quorums meet each other, every quorum is a
// transversal, but it need not be a minimal one.

func (g *list) transversals() iter.Seq[set] {
	unbounded := maxInt
	return g.hitting(&unbounded, nil)
}

// hitting enumerates minimal hitting sets depth first (Murakami and Uno,
// "Efficient Algorithms for Dualizing Large-Scale Hypergraphs", Discrete Applied
// Mathematics 170, 2014, the algorithm MMCS). A set is kept minimal on the way
// down: each chosen input has a quorum that only it meets (critical), and an
// input that would take the last such quorum from another is not chosen. A branch is
// left out if prune, which may be nil, says so. It ends early when it has touched as many words as the
// budget has, which is below 0 then.
func (g *list) hitting(budget *int, prune func(chosen, open, allowed set) bool) iter.Seq[set] {
	return func(yield func(set) bool) {
		var (
			chosen   = newSet(g.size())
			allowed  = full(g.size())
			open     = full(g.family.len()) // quorums not yet met
			critical = make([]set, g.size())
			descend  func() bool
		)
		descend = func() bool {
			switch {
			case open.empty():
				return yield(chosen)
			case *budget < 0:
				return false
			case prune != nil && prune(chosen, open, allowed):
				return true
			}
			branch, least := newSet(g.size()), maxInt
			for q := range open.each() {
				*budget -= g.family.width
				if n := g.family.at(q).common(allowed); n < least {
					least = n
					copy(branch, g.family.at(q))
				}
			}
			for i := range branch {
				branch[i] &= allowed[i]
			}
			allowed.drop(branch)
			for i := range branch.each() {
				if g.spares(i, chosen, critical) {
					was, wasOpen := g.take(i, chosen, critical), open.clone()
					critical[i] = open.clone()
					for w, c := range g.column.at(i) {
						critical[i][w] &= c
					}
					open.drop(g.column.at(i))
					chosen.add(i)
					if !descend() {
						return false
					}
					chosen.remove(i)
					copy(open, wasOpen)
					g.giveBack(chosen, critical, was)
				}
				allowed.add(i)
			}
			return true
		}
		descend()
	}
}

// spares reports whether each chosen input keeps a critical quorum if i joins.
func (g *list) spares(i int, chosen set, critical []set) bool {
	for c := range chosen.each() {
		if critical[c].within(g.column.at(i)) {
			return false
		}
	}
	return true
}

// take removes the quorums of i from the critical ones of all others, and
// returns those as they were.
func (g *list) take(i int, chosen set, critical []set) []set {
	var was []set
	for c := range chosen.each() {
		was = append(was, critical[c].clone())
		critical[c].drop(g.column.at(i))
	}
	return was
}

func (g *list) giveBack(chosen set, critical []set, was []set) {
	k := 0
	for c := range chosen.each() {
		copy(critical[c], was[k])
		k++
	}
}

// barrierWork bounds the search for a smallest transversal, in words compared.
const barrierWork = 1 << 27

// barrier searches for the cheapest transversal among the minimal ones, and leaves out
// what must cost as much as the best one so far.
func (g *list) barrier(cost []int) (low, high int) {
	switch {
	case g.family.len() == 0:
		return 0, 0
	case g.proved > 0 && slices.Min(cost) == slices.Max(cost):
		low = times(g.proved, cost[0])
		return low, low
	}
	price := func(s set) (sum int) {
		for i := range s.each() {
			sum = plus(sum, cost[i])
		}
		return sum
	}
	low, high = max(1, g.outlook(full(g.family.len()), full(g.size()), cost)), maxInt
	for _, q := range g.family.all() { // every quorum is one
		high = min(high, price(q))
	}
	budget := barrierWork
	for t := range g.hitting(&budget, func(chosen, open, allowed set) bool {
		budget -= len(open) * g.size()
		return low == high || plus(price(chosen), g.outlook(open, allowed, cost)) >= high
	}) {
		high = min(high, price(t))
	}
	if budget >= 0 {
		low = high
	}
	return low, high
}

// outlook returns what meeting the open quorums costs at least: inputs are taken
// as if no two of them met the same quorum, and in parts, the best first.
func (g *list) outlook(open, allowed set, cost []int) int {
	best := 0.0 // the best ratio of quorums met to cost
	for i := range allowed.each() {
		best = max(best, float64(open.common(g.column.at(i)))/float64(cost[i]))
	}
	if best == 0 {
		return maxInt // an open quorum can no longer be met
	}
	return int(math.Ceil(float64(open.count())/best - tight))
}

// Dual yields the minimal transversals of c, each once: the sets of sites that
// meet every quorum, and lose that with any site removed. While all sites of one are down, no
// node can enter. The family of them is the dual
// of c (its antiquorum set, in Garcia-Molina and Barbara, 1985), and
// the dual of the dual is c again. The order is the same each time.
//
// For a non-dominated coterie the dual is the coterie itself (Ibaraki and
// Kameda, "A Theory of Coteries: Mutual Exclusion in Distributed Systems", IEEE
// TPDS 4(7), 1993). For a dominated one it is no coterie.
//
// There may be exponentially many: stop when you have enough.
func (c Coterie[T]) Dual() iter.Seq[[]T] { return c.named(c.system().transversals()) }

// Resilience returns the largest number of crashes that leave a quorum
// whichever the sites that crash: one less than the size of the smallest
// transversal (Barbara and Garcia-Molina, "The Vulnerability of Vote
// Assignments", ACM TOCS 4(3), 1986, and Naor and Wool, 1998).
//
// The two numbers are bounds; they are equal, and the value exact, for every
// builder of this package at any size, and for any other coterie unless the search for
// the transversal, about a second of work, is cut short. It is -1 for the zero Coterie,
// which has no quorum to lose.
func (c Coterie[T]) Resilience() (least, most int) {
	s := c.system()
	bounds := fold(s, same(s.sites, [2]int{1, 1}), func(g gate, costs [][2]int) [2]int {
		lows, highs := make([]int, len(costs)), make([]int, len(costs))
		for i, c := range costs {
			lows[i], highs[i] = c[0], c[1]
		}
		low, high := g.barrier(lows)
		if !slices.Equal(lows, highs) {
			_, high = g.barrier(highs)
		}
		return [2]int{low, high}
	})
	return bounds[0] - 1, bounds[1] - 1
}
