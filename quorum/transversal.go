package quorum

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
)

// A transversal is a set of sites that meets every quorum: while all of them are
// down, there is no quorum, whichever other sites are up. So the smallest transversal
// says how many crashes a coterie survives for certain. The minimal transversals
// form the dual of the coterie. Since quorums meet each other, every quorum is a
// transversal, but it need not be a minimal one.

func (g *list) transversals() iter.Seq[set] {
	unbounded := maxInt
	return g.hitting(&unbounded)
}

// hitting enumerates minimal hitting sets depth first (Murakami and Uno,
// "Efficient Algorithms for Dualizing Large-Scale Hypergraphs", Discrete Applied
// Mathematics 170, 2014, the algorithm MMCS). A set is kept minimal on the way
// down: each chosen input has a quorum that only it meets (critical), and an
// input that would take the last such quorum from another is not chosen. It ends early
// when it has touched as many words as the budget has, which is below 0 then.
func (g *list) hitting(budget *int) iter.Seq[set] {
	return func(yield func(set) bool) {
		var (
			chosen   = newSet(g.size())
			allowed  = full(g.size())
			open     = full(g.family.len()) // quorums not yet met
			critical = make([]set, g.size())
			descend  func() bool
		)
		descend = func() bool {
			if open.empty() {
				return yield(chosen)
			}
			if *budget < 0 {
				return false
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
const barrierWork = 1 << 28

// barrier searches for the cheapest transversal by branch and bound. A branch
// takes an input of the open quorum with the fewest inputs left; later branches
// do without it. A branch is cut if even the inputs that meet the most open
// quorums for their cost would make it too dear.
func (g *list) barrier(cost []int) (low, high int) {
	if g.family.len() == 0 {
		return 0, 0
	}
	everything := full(g.family.len())
	low = max(1, g.outlook(everything, full(g.size()), cost))
	if slices.Max(cost) == 1 {
		low = max(low, g.proved)
	}
	high = g.greedy(everything, cost)
	for _, q := range g.family.all() { // every quorum is one
		sum := 0
		for i := range q.each() {
			sum = plus(sum, cost[i])
		}
		high = min(high, sum)
	}
	step := len(everything)*g.size() + g.family.len()*words(g.size())
	budget := barrierWork / step
	var descend func(open, allowed set, spent int)
	descend = func(open, allowed set, spent int) {
		if open.empty() {
			high = min(high, spent)
			return
		}
		if budget--; budget < 0 || low == high || plus(spent, g.outlook(open, allowed, cost)) >= high {
			return
		}
		branch, least := set(nil), maxInt
		for q := range open.each() {
			if n := g.family.at(q).common(allowed); n < least {
				branch, least = g.family.at(q), n
			}
		}
		var order []int
		for i := range branch.each() {
			if allowed.has(i) {
				order = append(order, i)
			}
		}
		slices.SortStableFunc(order, func(i, j int) int {
			return cmp.Compare(open.common(g.column.at(j)), open.common(g.column.at(i)))
		})
		left := allowed.clone()
		for _, i := range order {
			left.remove(i)
			rest := open.clone()
			rest.drop(g.column.at(i))
			descend(rest, left, plus(spent, cost[i]))
		}
	}
	descend(everything, full(g.size()), 0)
	if budget >= 0 {
		low = high
	}
	return low, high
}

// outlook returns what meeting the open quorums costs at least: inputs are taken
// as if no two of them met the same quorum, and in parts, the best first.
func (g *list) outlook(open, allowed set, cost []int) int {
	most, dear := 0, 1 // the best ratio of quorums met to cost
	for i := range allowed.each() {
		if n := open.common(g.column.at(i)); n*dear > most*cost[i] {
			most, dear = n, cost[i]
		}
	}
	if most == 0 {
		return maxInt // an open quorum can no longer be met
	}
	high, low := bits.Mul64(uint64(open.count()), uint64(dear))
	if high != 0 {
		return 0
	}
	return int((low + uint64(most) - 1) / uint64(most))
}

// greedy returns the cost of a transversal of the inputs that, one after the
// other, meet the most open quorums for their cost.
func (g *list) greedy(quorums set, cost []int) int {
	open, spent := quorums.clone(), 0
	for !open.empty() {
		best, most := 0, 0.0
		for i := range g.size() {
			if r := float64(open.common(g.column.at(i))) / float64(cost[i]); r > most {
				best, most = i, r
			}
		}
		open.drop(g.column.at(best))
		spent = plus(spent, cost[best])
	}
	return spent
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
// builder of this package at any size (for Degenerate, up to some hundred sites),
// and for any other coterie unless the search for the transversal, about a second
// of work, is cut short. It is -1 for the
// zero Coterie, which has no quorum to lose.
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
