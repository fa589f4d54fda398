package quorum

import "iter"

// A system is a coterie with the names of its sites taken off: a tree of gates.
//
// Most coteries have too many quorums to write down (majority of 60 sites:
// about 10^17), yet all the known ones are made of few pieces. A piece is a
// gate: a small coterie whose members are its inputs. An input is a site or the
// output of another gate, and no site and no gate is the input of two. To get a
// quorum of the whole, take a quorum of the root gate and replace each gate
// among its inputs by a quorum of that gate, and so on down. This is the
// composition of coteries (the join of Neilsen and Mizuno, "Coterie Join
// Algorithm", IEEE TPDS 3(5), 1992; in the theory of simple games, the compound
// of Shapley, 1962), and what makes it worth having is that nearly everything
// passes through it gate by gate:
//
//   - a composition of coteries is a coterie, and lists each quorum once;
//   - the dual of a composition is the composition of the duals;
//   - it is non-dominated exactly if every gate is (each input occurs in some
//     quorum of its gate, which the builders see to);
//   - the probability that it has a quorum is that of the root, whose inputs are
//     up with the probabilities of theirs;
//   - a cheapest quorum is a cheapest quorum of the root, whose inputs cost what
//     theirs cost.
type system struct {
	sites int
	nodes []node // inputs before those that use them; the root is the last
}

type node struct {
	gate gate
	in   []input
}

// An input is site i as i, or node k as ^k.
type input int

func (in input) site() (int, bool) { return int(in), in >= 0 }
func (in input) node() int         { return int(^in) }

// A gate is a coterie over its own inputs 0, ..., size-1. Every input occurs in
// some quorum, but for the empty gate of the zero Coterie.
type gate interface {
	size() int

	// holds reports whether the inputs contain a quorum.
	holds(up set) bool

	// quorums and transversals yield each minimal set once. What is yielded is
	// overwritten afterwards.
	quorums() iter.Seq[set]
	transversals() iter.Seq[set]

	// count counts the quorums, input i standing for ways[i] of its own; with
	// an input given (not -1), only those quorums that contain it.
	count(ways []int, with int) int

	// cheapest returns a quorum of least cost, the costs of any sign; with an
	// input given, of those that contain it. The set is the caller's. Of equals
	// it returns the same one each time.
	cheapest(cost []float64, with int) (set, float64)

	// barrier returns the cost of a cheapest transversal, the costs at least 1,
	// or bounds of it where the search is cut short.
	barrier(cost []int) (low, high int)

	// chance returns the probability that the inputs that are up contain a
	// quorum, and false where that is too much work.
	chance(up []float64) (float64, bool)

	// gap returns inputs that neither contain a quorum nor leave one among the
	// others, nil if there are none, and ErrTooLarge where the search is cut
	// short.
	gap() (set, error)
}

var nothing = &system{nodes: []node{{gate: newList(emptyFamily(0, 0))}}}

func (s *system) root() node { return s.nodes[len(s.nodes)-1] }

// single returns the gate of a system that is one gate over the sites in order.
func (s *system) single() (gate, bool) {
	if len(s.nodes) != 1 {
		return nil, false
	}
	for i, in := range s.root().in {
		if int(in) != i {
			return nil, false
		}
	}
	return s.root().gate, true
}

// fold computes one value for each node out of the values of its inputs, and
// returns the root's. Sites have the values in leaf.
func fold[V any](s *system, leaf []V, value func(gate, []V) V) V {
	done := make([]V, len(s.nodes))
	var scratch []V
	for k, n := range s.nodes {
		scratch = scratch[:0]
		for _, in := range n.in {
			if site, ok := in.site(); ok {
				scratch = append(scratch, leaf[site])
			} else {
				scratch = append(scratch, done[in.node()])
			}
		}
		done[k] = value(n.gate, scratch)
	}
	return done[len(done)-1]
}

// same returns n times v.
func same[V any](n int, v V) []V {
	list := make([]V, n)
	for i := range list {
		list[i] = v
	}
	return list
}

// holder returns a function that reports whether a set contains a quorum. The
// function allocates nothing; it must not be called from two goroutines.
func (s *system) holder() func(up set) bool {
	if g, ok := s.single(); ok {
		return g.holds
	}
	local := make([]set, len(s.nodes))
	for k, n := range s.nodes {
		local[k] = newSet(len(n.in))
	}
	held := make([]bool, len(s.nodes))
	return func(up set) bool {
		for k, n := range s.nodes {
			clear(local[k])
			for i, in := range n.in {
				site, ok := in.site()
				if ok && up.has(site) || !ok && held[in.node()] {
					local[k].add(i)
				}
			}
			held[k] = n.gate.holds(local[k])
		}
		return held[len(held)-1]
	}
}

// expand yields each set that results from choosing, from the root down, a set of
// every gate that is reached. What is yielded is overwritten afterwards.
func (s *system) expand(sets func(gate) iter.Seq[set]) iter.Seq[set] {
	return func(yield func(set) bool) {
		acc := newSet(s.sites)
		var descend func(open []int) bool
		descend = func(open []int) bool {
			if len(open) == 0 {
				return yield(acc)
			}
			n, rest := s.nodes[open[len(open)-1]], open[:len(open)-1]
			for chosen := range sets(n.gate) {
				next := append([]int(nil), rest...)
				for i := range chosen.each() {
					if site, ok := n.in[i].site(); ok {
						acc.add(site)
					} else {
						next = append(next, n.in[i].node())
					}
				}
				if !descend(next) {
					return false
				}
				for i := range chosen.each() {
					if site, ok := n.in[i].site(); ok {
						acc.remove(site)
					}
				}
			}
			return true
		}
		descend([]int{len(s.nodes) - 1})
	}
}

func (s *system) quorums() iter.Seq[set] { return s.expand(gate.quorums) }

func (s *system) transversals() iter.Seq[set] { return s.expand(gate.transversals) }

// path returns, for each node, the input through which site with is reached, or
// -1; with -1 means no site.
func (s *system) path(with int) []int {
	through := same(len(s.nodes), -1)
	for k, n := range s.nodes {
		for i, in := range n.in {
			site, ok := in.site()
			if with >= 0 && (ok && site == with || !ok && through[in.node()] >= 0) {
				through[k] = i
			}
		}
	}
	return through
}

// count counts the quorums, and stops at the largest int.
func (s *system) count() int {
	return fold(s, same(s.sites, 1), func(g gate, ways []int) int { return g.count(ways, -1) })
}

// cheapest returns a quorum of least cost (of those that contain site with,
// unless it is -1), and its cost; nil if there is none.
func (s *system) cheapest(cost []float64, with int) (set, float64) {
	through, k := s.path(with), -1
	chosen := make([]set, len(s.nodes))
	total := fold(s, cost, func(g gate, cost []float64) float64 {
		k++
		var c float64
		chosen[k], c = g.cheapest(cost, through[k])
		return c
	})
	if chosen[len(chosen)-1] == nil {
		return nil, 0
	}
	q := newSet(s.sites)
	var take func(k int)
	take = func(k int) {
		for i := range chosen[k].each() {
			in := s.nodes[k].in[i]
			if site, ok := in.site(); ok {
				q.add(site)
			} else {
				take(in.node())
			}
		}
	}
	take(len(s.nodes) - 1)
	return q, total
}

// An assembly is a system in the making.
type assembly struct{ nodes []node }

// add puts a gate over inputs and returns it as an input of others.
func (a *assembly) add(g gate, in []input) input {
	a.nodes = append(a.nodes, node{g, in})
	return ^input(len(a.nodes) - 1)
}

// graft puts a whole system in, its site i replaced by leaf[i].
func (a *assembly) graft(s *system, leaf []input) input {
	base := len(a.nodes)
	for _, n := range s.nodes {
		in := make([]input, len(n.in))
		for i, x := range n.in {
			if site, ok := x.site(); ok {
				in[i] = leaf[site]
			} else {
				in[i] = ^input(base + x.node())
			}
		}
		a.nodes = append(a.nodes, node{n.gate, in})
	}
	return ^input(len(a.nodes) - 1)
}

// below returns what hangs under a node, and the sites that occur in it, each once.
func (a *assembly) below(root input) (out *system, used []int) {
	out = new(system)
	place := same(len(a.nodes), -1)
	var visit func(k int)
	visit = func(k int) {
		n := node{a.nodes[k].gate, append([]input(nil), a.nodes[k].in...)}
		for i, in := range n.in {
			if site, ok := in.site(); ok {
				used = append(used, site)
			} else {
				visit(in.node())
				n.in[i] = ^input(place[in.node()])
			}
		}
		place[k] = len(out.nodes)
		out.nodes = append(out.nodes, n)
	}
	visit(root.node())
	return out, used
}
