package quorum

import (
	"iter"
	"slices"
)

// A system is a coterie with the names of its sites taken off: a tree of gates.
//
// Most coteries have too many quorums to write down (majority of 60 sites: about 10^17),
// yet all the known ones are compositions of few small coteries, the gates (see [Compose]).
// An input of a gate is a site or a system, and no site is in two of them. Nearly every
// property of a composition follows from those of its gates:
//
//   - it is a coterie, and lists each quorum once;
//   - its dual is the composition of the duals;
//   - it is non-dominated exactly if every gate is (each input occurs in some
//     quorum of its gate, which the builders see to);
//   - the probability that it has a quorum is that of the root, whose inputs are
//     up with the probabilities of theirs;
//   - a cheapest quorum is a cheapest one of the root, whose inputs cost what theirs cost;
//   - its load is that of the root, where an input that is used at some rate is as
//     busy as that rate times its own load.
type system struct {
	gate gate // nil for a site
	in   []*system
	site int
}

// A gate is a coterie over its own inputs 0, 1, ... Every input occurs in
// some quorum, but for the empty gate of the zero Coterie.
type gate interface {
	// holds reports whether the inputs contain a quorum.
	holds(up set) bool

	// quorums and transversals yield each minimal set once, and overwrite it afterwards.
	quorums() iter.Seq[set]
	transversals() iter.Seq[set]

	// count counts the quorums, input i standing for ways[i] of its own.
	count(ways []int) int

	// cheapest returns a quorum of least cost, the costs of any sign. The set is the
	// caller's. If several are cheapest, it returns the same one each time.
	cheapest(cost []float64) (set, float64)

	// barrier returns the cost of a cheapest transversal, or bounds of it where the search
	// is cut short. The costs are integers of at least 1.
	barrier(cost []float64) (low, high float64)

	// busy returns how often input i is used at most if all quorums are equally likely.
	busy(i int) float64

	// chance returns the probability that the inputs that are up contain a
	// quorum, and false where that is too much work.
	chance(up []float64) (float64, bool)

	// gap returns inputs that neither contain a quorum nor leave one among the others, or
	// nil, and ErrTooLarge where the search is cut short.
	gap() (set, error)
}

var nothing = &system{gate: newList(nil, 0)}

// leaves returns the sites 0, ..., n-1.
func leaves(n int) []*system {
	in := make([]*system, n)
	for i := range in {
		in[i] = &system{site: i}
	}
	return in
}

// replace returns s with leaf[i] in the place of site i.
func (s *system) replace(leaf []*system) *system {
	return fold(s, leaf, func(g gate, in []*system) *system { return &system{gate: g, in: in} })
}

func (s *system) mark(sites set) {
	if s.gate == nil {
		sites.add(s.site)
	}
	for _, x := range s.in {
		x.mark(sites)
	}
}

// fold computes one value for each gate out of the values of its inputs, and returns the
// root's. Sites have the values in leaf.
func fold[V any](s *system, leaf []V, value func(gate, []V) V) V {
	if s.gate == nil {
		return leaf[s.site]
	}
	in := make([]V, len(s.in))
	for i, x := range s.in {
		in[i] = fold(x, leaf, value)
	}
	return value(s.gate, in)
}

// bounds folds a measure for which a gate may know only bounds. They grow with the values of the
// inputs. Each of n sites has the value 1.
func (s *system) bounds(n int, measure func(g gate, in []float64) (low, high float64)) (low, high float64) {
	all := fold(s, same(n, [2]float64{1, 1}), func(g gate, in [][2]float64) [2]float64 {
		lows, highs, exact := make([]float64, len(in)), make([]float64, len(in)), true
		for i, b := range in {
			lows[i], highs[i] = b[0], b[1]
			exact = exact && b[0] == b[1]
		}
		low, high := measure(g, lows)
		if !exact {
			_, high = measure(g, highs)
		}
		return [2]float64{low, high}
	})
	return all[0], all[1]
}

func same[V any](n int, v V) []V { return slices.Repeat([]V{v}, n) }

// holds reports whether a set of sites contains a quorum.
func (s *system) holds(up set) bool {
	if s.gate == nil {
		return up.has(s.site)
	}
	local := newSet(len(s.in))
	for i, x := range s.in {
		if x.holds(up) {
			local.add(i)
		}
	}
	return s.gate.holds(local)
}

// expand yields each set of n sites that results from choosing, from the root down, a
// set of every gate that is reached. What is yielded is overwritten afterwards.
func (s *system) expand(n int, sets func(gate) iter.Seq[set]) iter.Seq[set] {
	return func(yield func(set) bool) {
		acc := newSet(n)
		s.choose(acc, sets, func() bool { return yield(acc) })
	}
}

// choose adds each choice to acc, one at a time, as long as then returns true.
func (s *system) choose(acc set, sets func(gate) iter.Seq[set], then func() bool) bool {
	if s.gate == nil {
		acc.add(s.site)
		more := then()
		acc.remove(s.site)
		return more
	}
	for chosen := range sets(s.gate) {
		next := then
		for i := range chosen.each() {
			rest := next
			next = func() bool { return s.in[i].choose(acc, sets, rest) }
		}
		if !next() {
			return false
		}
	}
	return true
}

// cheapest returns a quorum of least cost, and its cost; the empty set if there is none.
func (s *system) cheapest(cost []float64) (set, float64) {
	var chosen []set // by each gate, inputs before those that use them
	least := fold(s, cost, func(g gate, cost []float64) float64 {
		q, least := g.cheapest(cost)
		chosen = append(chosen, q)
		return least
	})
	q := newSet(len(cost))
	var take func(s *system, used bool)
	take = func(s *system, used bool) {
		switch {
		case s.gate != nil:
			last := len(chosen) - 1
			mine := chosen[last]
			chosen = chosen[:last]
			for i := len(s.in) - 1; i >= 0; i-- {
				take(s.in[i], used && mine.has(i))
			}
		case used:
			q.add(s.site)
		}
	}
	take(s, true)
	return q, least
}
