package quorum

import (
	"cmp"
	"slices"
)

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

// below adds to side all sites below some inputs.
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
