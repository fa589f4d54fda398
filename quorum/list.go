package quorum

import (
	"iter"
	"math"
	"slices"
)

// list is the gate whose quorums are written out. What cannot be read off them
// is found by search, and each search says when it gives up.
type list struct {
	family []set
	column []set // for each input, the quorums that contain it
	proved int   // the size of a smallest transversal, if the builder knows it, or 0
}

// newList takes over a family over n inputs that obeys the laws of a coterie.
func newList(family []set, n int) *list { return &list{family: family, column: columns(family, n)} }

func (g *list) holds(up set) bool { return holds(g.family, up) }

func (g *list) quorums() iter.Seq[set] { return slices.Values(g.family) }

func (g *list) busy(i int) float64 { return float64(g.column[i].count()) / float64(len(g.family)) }

func (g *list) count(ways []int) int {
	total := 0
	for _, q := range g.family {
		n := 1
		for i := range q.each() {
			n = times(n, ways[i])
		}
		total = plus(total, n)
	}
	return total
}

func (g *list) cheapest(cost []float64) (set, float64) {
	total := 0.0
	for _, c := range cost {
		total += math.Abs(c)
	}
	among, found, least := full(len(g.family)), -1, inf
	for i, c := range cost {
		if 2*c < -total { // it saves more than all others can cost
			among = g.column[i]
		}
	}
	for i := range among.each() {
		if sum := g.family[i].sum(cost); sum < least {
			found, least = i, sum
		}
	}
	if found < 0 {
		return nil, 0
	}
	return slices.Clone(g.family[found]), least
}
