package quorum

import (
	"cmp"
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
// The points are the triples over the field of q elements whose first non-zero
// coordinate is 1, in ascending order, so are the lines, and a point is on a
// line if their product is zero.
//
// Its load is (q+1)/n and its resilience q. It is dominated for every q but 2.
//
// It refuses an n that is not q^2+q+1 for a prime power q (ErrSize), a site given twice
// (ErrDuplicate), and more than 8192 sites (ErrTooLarge).
func Plane[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	n := len(sites)
	q := order(n)
	f, ok := newField(q)
	if !ok || n != q*q+q+1 {
		return Coterie[T]{}, refuse(ErrSize, strconv.Itoa(n)+" is not q^2+q+1 for a prime power q, as 7, 13, 21, 31 and 57 are; Grid takes any number")
	}
	var a assembly
	return finish(&a, a.written(f.lines().sorted(), leaves(n)), sites), nil
}

// order returns the largest q with q^2+q+1 <= n.
func order(n int) int {
	q := 0
	for q*q+3*q+3 <= n {
		q++
	}
	return q
}

// lines returns the lines of the plane over f. Point i is on line j exactly if
// point j is on line i.
func (f *field) lines() *family {
	q := f.q
	n := q*q + q + 1
	lines := emptyFamily(n, n)
	for j := range n {
		line := lines.grow()
		a, b, c := f.point(j)
		switch {
		case c == 0 && b == 0: // x = 0: (0,1,z) and (0,0,1)
			for i := range q + 1 {
				line.add(i)
			}
		case c == 0: // a*x + b*y = 0
			line.add(0) // (0,0,1)
			y := f.multiply(f.negative(a), f.inverse(b))
			for z := range q {
				line.add(q + 1 + y*q + z)
			}
		default: // z = -(a*x + b*y)/c
			over := f.negative(f.inverse(c))
			line.add(1 + f.multiply(b, over)) // (0,1,z)
			for y := range q {
				z := f.multiply(f.add(a, f.multiply(b, y)), over)
				line.add(q + 1 + y*q + z)
			}
		}
	}
	return lines
}

// point returns the coordinates of a point: (0,0,1) is number 0, (0,1,z) are
// 1, ..., q, and (1,y,z) the rest.
func (f *field) point(i int) (x, y, z int) {
	switch {
	case i == 0:
		return 0, 0, 1
	case i <= f.q:
		return 0, 1, i - 1
	}
	i -= f.q + 1
	return 1, i / f.q, i % f.q
}
