package quorum

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
)

// votes is the gate of weighted voting: a set holds if its votes reach the
// threshold. Its minimal sets have a handle by which all questions become one
// walk over the inputs: with the weights in descending order, a set that reaches
// the threshold is minimal exactly if it does not without its last member, the
// lightest. So a minimal set is a last member j, and members before j whose
// votes fall short by at most weight[j].
//
// Its dual is a votes gate too: a set meets every quorum exactly if the votes
// outside do not reach the threshold, that is, if it has total-threshold+1.
type votes struct {
	weight    []int // descending, positive
	threshold int
	total     int
}

func newVotes(weight []int, threshold int) *votes {
	g := &votes{weight, threshold, 0}
	for _, w := range weight {
		g.total += w
	}
	return g
}

// voting returns a votes gate over inputs, and takes care of what the gate must not have:
// inputs in any order, without votes, or that occur in no quorum (a dummy, in
// the words of simple games). Dropping a dummy changes no quorum. A gate over a
// single input is that input.
func voting(weight []int, threshold int, in []*system) *system {
	order := make([]int, 0, len(in))
	for i, w := range weight {
		if w > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return weight[j] - weight[i] })
	sorted := make([]int, len(order))
	inputs := make([]*system, len(order))
	for k, i := range order {
		sorted[k], inputs[k] = weight[i], in[i]
	}
	// A site with more votes can stand in for a site with fewer, so the dummies are
	// the last ones. Mostly there are none; else a search by halves finds the first.
	g, needed := newVotes(sorted, threshold), len(sorted)
	for low := 0; needed > low && !g.pivotal(needed-1); {
		if mid := (low + needed) / 2; g.pivotal(mid) {
			low = mid + 1
		} else {
			needed = mid
		}
	}
	if needed == 1 {
		return inputs[0]
	}
	return &system{gate: newVotes(sorted[:needed], threshold), in: inputs[:needed]}
}

// pivotal reports whether input i occurs in some quorum: whether others can
// fall short of the threshold by at most its weight.
func (g *votes) pivotal(i int) bool {
	short := g.threshold - g.weight[i]
	if short <= 0 {
		return true
	}
	others := slices.Delete(slices.Clone(g.weight), i, i+1)
	q, sum := newVotes(others, short).cheapestReaching(short, floats(others))
	return q != nil && int(sum) < g.threshold
}

// equal reports whether all inputs weigh the same, and then how many reach a threshold.
func (g *votes) equal(threshold int) (int, bool) {
	first, last := g.weight[0], g.weight[len(g.weight)-1]
	return (threshold + first - 1) / first, first == last
}

func (g *votes) holds(up set) bool {
	sum := 0
	for i := range up.each() {
		sum += g.weight[i]
	}
	return sum >= g.threshold
}

func (g *votes) quorums() iter.Seq[set] { return g.reaching(g.threshold) }

func (g *votes) transversals() iter.Seq[set] { return g.reaching(g.total - g.threshold + 1) }

// reaching yields the minimal sets with at least threshold votes.
func (g *votes) reaching(threshold int) iter.Seq[set] {
	return func(yield func(set) bool) {
		rest := make([]int, len(g.weight)+1) // votes from input i on
		for i := len(g.weight) - 1; i >= 0; i-- {
			rest[i] = rest[i+1] + g.weight[i]
		}
		acc := newSet(len(g.weight))
		var choose func(i, missing int) bool
		choose = func(i, missing int) bool {
			if missing <= 0 {
				return yield(acc)
			}
			for ; i < len(g.weight) && rest[i] >= missing; i++ {
				acc.add(i)
				if !choose(i+1, missing-g.weight[i]) {
					return false
				}
				acc.remove(i)
			}
			return true
		}
		choose(0, threshold)
	}
}

// count walks the inputs in order with ways[s] = how many sets of those passed have s
// votes.
func (g *votes) count(each []int) int {
	ways := same(g.threshold, 0)
	ways[0] = 1
	total := 0
	for j, w := range g.weight {
		for s := max(0, g.threshold-w); s < g.threshold; s++ {
			total = plus(total, times(ways[s], each[j]))
		}
		for s := g.threshold - 1; s >= w; s-- {
			ways[s] = plus(ways[s], times(ways[s-w], each[j]))
		}
	}
	return total
}

// chance is the same walk with the probability of such a set in place of their number.
// Whatever follows the input that reaches the threshold may be up or down.
func (g *votes) chance(up []float64) (float64, bool) {
	ways := same(g.threshold, 0.0)
	ways[0] = 1
	total := 0.0
	for j, w := range g.weight {
		for s := max(0, g.threshold-w); s < g.threshold; s++ {
			total += ways[s] * up[j]
		}
		for s := g.threshold - 1; s >= 0; s-- {
			ways[s] *= 1 - up[j]
			if s >= w {
				ways[s] += ways[s-w] * up[j]
			}
		}
	}
	return total, true
}

func (g *votes) busy(int) float64 {
	if k, ok := g.equal(g.threshold); ok {
		return float64(k) / float64(len(g.weight))
	}
	return 1
}

func (g *votes) cheapest(cost []float64) (set, float64) {
	return g.cheapestReaching(g.threshold, cost)
}

// cheapestReaching is the same walk with the cost of the cheapest such set. The votes
// that a set may have are few (the sums below
// the threshold); taken remembers which of them input j was used for.
func (g *votes) cheapestReaching(threshold int, cost []float64) (set, float64) {
	if k, ok := g.equal(threshold); ok {
		return cheapestOf(k, cost)
	}
	best := same(threshold, inf)
	best[0] = 0
	taken := newSets(len(g.weight), threshold)
	last, short, least := -1, 0, inf
	for j, w := range g.weight {
		for s := max(0, threshold-w); s < threshold; s++ {
			if best[s]+cost[j] < least {
				last, short, least = j, s, best[s]+cost[j]
			}
		}
		for s := threshold - 1; s >= w; s-- {
			if best[s-w]+cost[j] < best[s] {
				best[s] = best[s-w] + cost[j]
				taken[j].add(s)
			}
		}
	}
	if last < 0 {
		return nil, 0
	}
	q := newSet(len(g.weight))
	q.add(last)
	for j, s := last-1, short; j >= 0; j-- {
		if taken[j].has(s) {
			q.add(j)
			s -= g.weight[j]
		}
	}
	return q, least
}

// cheapestOf takes the k cheapest inputs.
func cheapestOf(k int, cost []float64) (set, float64) {
	order := make([]int, len(cost))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(cost[i], cost[j]) })
	q := newSet(len(cost))
	for _, i := range order[:k] {
		q.add(i)
	}
	return q, q.sum(cost)
}

func (g *votes) barrier(cost []float64) (low, high float64) {
	_, least := g.cheapestReaching(g.total-g.threshold+1, cost)
	return least, least
}

func floats(list []int) []float64 {
	f := make([]float64, len(list))
	for i, v := range list {
		f[i] = float64(v)
	}
	return f
}

// gap looks for a set with fewer votes than the threshold that leaves fewer.
func (g *votes) gap() (set, error) {
	found, sum := g.cheapestReaching(g.total-g.threshold+1, floats(g.weight))
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
// Gifford, "Weighted Voting for Replicated Data", SOSP 1979, where
// the threshold is the write quorum w, with 2w > v; the reduction to minimal
// sets is that of Garcia-Molina and Barbara, 1985.
//
// It refuses negative votes, votes that sum to nothing, and a threshold that
// cannot be reached or that is not more than half of all votes (all ErrSize), and
// sites times threshold beyond 2^26 (ErrTooLarge).
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
