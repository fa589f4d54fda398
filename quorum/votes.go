package quorum

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
)

// votes is the gate of weighted voting: a set holds if its votes reach the threshold. With
// the weights in descending order, such a set is minimal exactly if it falls short without
// its last member. So all questions about minimal sets become one walk over the inputs: a
// last member j, and members before j whose votes fall short by at most weight[j].
type votes struct {
	weight    []int // descending, positive; 1 if all are equal
	threshold int
	total     int
}

// voting returns a votes gate over inputs in any order, less those that occur in no quorum
// (dummies, in the words of simple games). A gate over a single input is that input.
func voting(weight []int, threshold int, in []*system) *system {
	g := &votes{threshold: threshold}
	var inputs []*system
	for _, i := range slices.SortedStableFunc(full(len(in)).each(), func(i, j int) int { return weight[j] - weight[i] }) {
		g.weight, inputs = append(g.weight, weight[i]), append(inputs, in[i])
	}
	heaviest, needed := g.weight[0], len(inputs)
	if g.weight[needed-1] < heaviest {
		needed = g.needed()
	}
	if needed == 1 {
		return inputs[0]
	}
	g.weight = g.weight[:needed]
	if g.weight[needed-1] == heaviest {
		g.threshold, g.weight = (threshold+heaviest-1)/heaviest, same(needed, 1)
	}
	for _, w := range g.weight {
		g.total += w
	}
	return &system{gate: g, in: inputs[:needed]}
}

// needed returns how many inputs occur in some quorum: those up to the last one that is the
// last member of a minimal set, because one with more votes can stand in for it.
func (g *votes) needed() (n int) {
	short := newSet(g.threshold) // what the votes of those passed can sum to
	short.add(0)
	for j, w := range g.weight {
		for s := g.threshold - 1; s >= 0; s-- {
			if short.has(s) && s+w >= g.threshold {
				n = j + 1
			}
			if s >= w && short.has(s-w) {
				short.add(s)
			}
		}
	}
	return n
}

func (g *votes) holds(up set) bool {
	sum := 0
	for i := range up.each() {
		sum += g.weight[i]
	}
	return sum >= g.threshold
}

// dual returns the gate of the sets that meet every quorum. These are votes too: the votes outside
// such a set do not reach the threshold.
func (g *votes) dual() *votes { return &votes{g.weight, g.total - g.threshold + 1, g.total} }

func (g *votes) transversals() iter.Seq[set] { return g.dual().quorums() }

func (g *votes) quorums() iter.Seq[set] {
	return func(yield func(set) bool) {
		acc := newSet(len(g.weight))
		var choose func(i, missing, rest int) bool // rest: the votes from input i on
		choose = func(i, missing, rest int) bool {
			if missing <= 0 {
				return yield(acc)
			}
			for ; rest >= missing; i++ {
				rest -= g.weight[i]
				acc.add(i)
				if !choose(i+1, missing-g.weight[i], rest) {
					return false
				}
				acc.remove(i)
			}
			return true
		}
		choose(0, g.threshold, g.total)
	}
}

// count walks the inputs in order with ways[s] = how many sets of those passed have s
// votes, or enough votes since the last of them.
func (g *votes) count(each []int) int {
	ways := same(g.threshold+1, 0)
	ways[0] = 1
	for j, w := range g.weight {
		for s := g.threshold - 1; s >= 0; s-- {
			with := min(s+w, g.threshold)
			ways[with] = plus(ways[with], times(ways[s], each[j]))
		}
	}
	return ways[g.threshold]
}

// chance is the same walk with the probability of such a set in place of their number.
// Whatever follows the input that reaches the threshold may be up or down.
func (g *votes) chance(up []float64) (float64, bool) {
	ways := same(g.threshold+1, 0.0)
	ways[0] = 1
	for j, w := range g.weight {
		for s := g.threshold - 1; s >= 0; s-- {
			ways[min(s+w, g.threshold)] += ways[s] * up[j]
			ways[s] *= 1 - up[j]
		}
	}
	return ways[g.threshold], true
}

func (g *votes) busy(int) float64 {
	if g.weight[0] > 1 {
		return 1
	}
	return float64(g.threshold) / float64(g.total)
}

// cheapest is the same walk with the cost of the cheapest such set; taken[j] has the sums for
// which j was used. Of inputs with one vote each it takes the cheapest.
func (g *votes) cheapest(cost []float64) (set, float64) {
	q := newSet(len(cost))
	if g.weight[0] == 1 {
		for _, i := range slices.SortedStableFunc(full(len(cost)).each(), func(i, j int) int { return cmp.Compare(cost[i], cost[j]) })[:g.threshold] {
			q.add(i)
		}
		return q, q.sum(cost)
	}
	best := same(g.threshold+1, inf)
	best[0] = 0
	taken := newSets(len(g.weight), g.threshold+1)
	last, short := 0, 0
	for j, w := range g.weight {
		for s := g.threshold - 1; s >= 0; s-- {
			with := min(s+w, g.threshold)
			if best[s]+cost[j] >= best[with] {
				continue
			}
			best[with] = best[s] + cost[j]
			taken[j].add(with)
			if with == g.threshold {
				last, short = j, s
			}
		}
	}
	q.add(last)
	for j, s := last-1, short; j >= 0; j-- {
		if taken[j].has(s) {
			q.add(j)
			s -= g.weight[j]
		}
	}
	return q, best[g.threshold]
}

func (g *votes) barrier(cost []float64) (low, high float64) {
	_, least := g.dual().cheapest(cost)
	return least, least
}

// gap looks for a set with fewer votes than the threshold that leaves fewer.
func (g *votes) gap() (set, error) {
	cost := make([]float64, len(g.weight))
	for i, w := range g.weight {
		cost[i] = float64(w)
	}
	found, sum := g.dual().cheapest(cost)
	if int(sum) >= g.threshold {
		return nil, nil
	}
	return found, nil
}

// A Vote is a site and the number of its votes.
type Vote[T any] struct {
	Site  T
	Votes int
}

// maxTally bounds sites times threshold, the work of one walk over a votes gate.
const maxTally = 1 << 26

// Majority returns the coterie of all sets of floor(n/2)+1 of the n sites; of one site it
// is the central coordinator, with load 1 and resilience 0. Its load is the size of a
// quorum over n, more than one half, and its resilience ceil(n/2)-1. For odd n nothing is
// more available if all sites are up with the same probability, above one half (Barbara and
// Garcia-Molina, "The Reliability of Voting Mechanisms", IEEE Transactions on Computers
// 36(10), 1987). For even n give one site two votes, by [Weighted]: ties are then decided.
//
// Thomas, "A Majority Consensus Approach to Concurrency Control for Multiple
// Copy Databases", ACM TODS 4(2), 1979.
//
// It is non-dominated exactly if n is odd.
func Majority[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	ballots := make([]Vote[T], len(sites))
	for i, s := range sites {
		ballots[i] = Vote[T]{s, 1}
	}
	return Weighted(len(sites)/2+1, ballots...)
}

// Weighted returns the coterie of the minimal sets of sites that have at least
// threshold votes. Sites that occur in no minimal set, such as those without
// votes, are not sites of the coterie.
//
// Gifford, "Weighted Voting for Replicated Data", SOSP 1979, where the threshold is the
// write quorum w, with 2w > v; minimal sets as in Garcia-Molina and Barbara, 1985.
//
// It refuses negative votes, none in all, a threshold out of reach or not more than half of
// all votes (all ErrSize), and sites times threshold beyond 2^26 (ErrTooLarge).
func Weighted[T cmp.Ordered](threshold int, votes ...Vote[T]) (Coterie[T], error) {
	names := make([]T, len(votes))
	weight := make([]int, len(votes))
	total := 0
	for i, v := range votes {
		names[i], weight[i] = v.Site, v.Votes
		if v.Votes < 0 {
			return Coterie[T]{}, refuse(ErrSize, named(i, v.Site)+" has "+strconv.Itoa(v.Votes)+" votes; give 0 or more")
		}
		total = plus(total, v.Votes)
	}
	if err := distinct(names); err != nil {
		return Coterie[T]{}, err
	}
	switch {
	case total == 0:
		return Coterie[T]{}, refuse(ErrSize, "the votes sum to nothing; give at least one site a vote")
	case threshold <= total/2:
		return Coterie[T]{}, refuse(ErrSize, "two disjoint groups could both have "+strconv.Itoa(threshold)+" of "+strconv.Itoa(total)+
			" votes; let the threshold be at least "+strconv.Itoa(total/2+1))
	case threshold > total:
		return Coterie[T]{}, refuse(ErrSize, "no group can have "+strconv.Itoa(threshold)+" of "+strconv.Itoa(total)+
			" votes; let the threshold be at most "+strconv.Itoa(total))
	case times(threshold, len(votes)) > maxTally:
		return Coterie[T]{}, refuse(ErrTooLarge, strconv.Itoa(len(votes))+" sites with a threshold of "+strconv.Itoa(threshold)+
			"; divide the votes, until sites times threshold is at most "+strconv.Itoa(maxTally))
	}
	return finish(voting(weight, threshold, leaves(len(names))), names), nil
}
