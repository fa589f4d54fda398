package quorum

import (
	"cmp"
	"math"
	"strconv"
)

// Plane returns the coterie of the lines of a finite projective plane: n =
// q^2+q+1 sites are its points, q being a prime power, and its n lines have q+1
// points each. Any two lines meet in exactly one point, and each point is on q+1
// lines; no coterie in which sites and quorums are all alike has smaller quorums.
//
// Maekawa, "A sqrt(N) Algorithm for Mutual Exclusion in Decentralized Systems",
// ACM TOCS 3(2), 1985, with K = q+1.
//
// The points are, in this order, those where the vertical lines meet, where the lines of
// each slope meet (the line at infinity), and (x,y) over the field of q elements.
//
// Its load is (q+1)/n and its resilience q. It is dominated for every q but 2.
//
// It refuses an n that is not q^2+q+1 for a prime power q (ErrSize).
func Plane[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	n := len(sites)
	q := int(math.Sqrt(float64(n)))
	f, ok := newField(q)
	if !ok || n != q*q+q+1 {
		return Coterie[T]{}, refuse(ErrSize, strconv.Itoa(n)+" is not q^2+q+1 for a prime power q, as 7, 13, 21, 31 and 57 are; Grid takes any number")
	}
	at := func(x, y int) int { return q + 1 + x*q + y }
	lines := newSets(n, n)
	infinity, vertical, others := lines[0], lines[1:q+1], lines[q+1:]
	for i := range q + 1 {
		infinity.add(i)
	}
	for x := range q {
		vertical[x].add(0)
		for y := range q {
			vertical[x].add(at(x, y))
		}
	}
	for slope := range q {
		for b := range q { // y = slope*x + b
			line := others[slope*q+b]
			line.add(1 + slope)
			for x := range q {
				line.add(at(x, f.add(f.multiply(slope, x), b)))
			}
		}
	}
	return finish(written(lines, leaves(n)), sites), nil
}
