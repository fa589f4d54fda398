package quorum

import "iter"

// list is the gate whose quorums are written out. What cannot be read off them
// is found by search, and each search says when it gives up.
type list struct {
	family *family
	column *family // for each input, the quorums that contain it
	proved int     // the size of a smallest transversal, if the builder knows it, or 0
}

// newList takes over a family that obeys the laws of a coterie.
func newList(f *family) *list { return &list{family: f, column: f.columns()} }

func (g *list) size() int { return g.family.n }

func (g *list) holds(up set) bool { return g.family.holds(up) }

func (g *list) quorums() iter.Seq[set] {
	return func(yield func(set) bool) {
		s := newSet(g.size())
		for _, q := range g.family.all() {
			copy(s, q)
			if !yield(s) {
				return
			}
		}
	}
}

func (g *list) count(ways []int, with int) int {
	total := 0
	for _, q := range g.family.all() {
		if with >= 0 && !q.has(with) {
			continue
		}
		n := 1
		for i := range q.each() {
			n = times(n, ways[i])
		}
		total = plus(total, n)
	}
	return total
}

func (g *list) cheapest(cost []float64, with int) (set, float64) {
	var found set
	least := inf
	for _, q := range g.family.all() {
		if with >= 0 && !q.has(with) {
			continue
		}
		sum := 0.0
		for i := range q.each() {
			sum += cost[i]
		}
		if sum < least {
			found, least = q, sum
		}
	}
	if found == nil {
		return nil, 0
	}
	return found.clone(), least
}
