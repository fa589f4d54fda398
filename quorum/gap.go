package quorum

// A gap of a coterie is a set of sites that contains no quorum and leaves none
// among the others: when the group splits along it, neither side can go on. A
// coterie without gaps is non-dominated: no other coterie has a quorum whenever
// this one has, and sometimes when this has none (Garcia-Molina and Barbara,
// 1985, theorem 2.1; by the dual, Ibaraki and Kameda, 1993).
// Non-dominated coteries are the ones to use: a dominated one gives availability
// away and gets nothing for it.

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
			return t.clone(), nil
		}
		budget -= len(g.family.bits)
	}
	if budget < 0 {
		return nil, refuse(ErrTooLarge, "the search for a gap was cut short; ask about a smaller coterie")
	}
	return nil, nil
}

// gap returns the sites of a gap, or nil. If a gate has one, the gates above it
// can be made to depend on that gate alone: the rest of a quorum that contains
// it is put on this side, everything else on the other, and so on up.
func (s *system) gap() (set, error) {
	var err error
	for k, n := range s.nodes {
		local, e := n.gate.gap()
		if e != nil {
			err = e // another gate may yet have one that is found
		}
		if local == nil {
			continue
		}
		side := newSet(s.sites)
		s.place(k, local, side)
		for above := k + 1; above < len(s.nodes); above++ {
			for i, in := range s.nodes[above].in {
				if _, ok := in.site(); ok || in.node() != k {
					continue
				}
				q, _ := s.nodes[above].gate.cheapest(same(len(s.nodes[above].in), 1.0), i)
				q.remove(i)
				s.place(above, q, side)
				k = above
				break
			}
		}
		return side, nil
	}
	return nil, err
}

// place adds to side all sites below some inputs of node k.
func (s *system) place(k int, inputs, side set) {
	for i := range inputs.each() {
		in := s.nodes[k].in[i]
		if site, ok := in.site(); ok {
			side.add(site)
			continue
		}
		s.place(in.node(), full(len(s.nodes[in.node()].in)), side)
	}
}

// Gap returns sites that neither contain a quorum of c nor leave one among the
// other sites of c, or nil if c is non-dominated. It is the same set each time.
//
// For written-out quorums it is a search that may take exponential time; it is
// cut short with ErrTooLarge after about a second. The zero Coterie has no
// quorum anywhere: its gap is empty, but not nil.
func (c Coterie[T]) Gap() ([]T, error) {
	found, err := c.system().gap()
	if found == nil {
		return nil, err
	}
	return c.members(found), nil
}
