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
// It refuses an n that is not q^2+q+1 for a prime power q (ErrSize), with the sizes
// near by, a site given twice (ErrDuplicate), and more than 8192 sites (ErrTooLarge).
func Plane[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	n := len(sites)
	q := order(n)
	f, ok := newField(q)
	if !ok || n != q*q+q+1 {
		return Coterie[T]{}, refuse(ErrSize, noPlane(n))
	}
	var a assembly
	return finish(&a, a.written(f.lines().sorted(), leaves(n)), sites), nil
}

// Degenerate returns a coterie for any n out of a projective plane: Maekawa's
// degenerate planes. It starts from the smallest plane of at least n points whose
// order is a prime power. Each point gets a line of its own that contains it. The
// points beyond n, and their lines, are left out. Where a point that was left out
// was the meeting of lines that stay, a site stands in for it on all of these,
// the one that has served on the fewest lines so far; where it was not, no
// line misses it. Lines that then contain others are left out as well.
//
// Maekawa, 1985, for an N that is not K(K-1)+1: conditions M3 and M4, equal size and equal duty,
// hold only nearly. If n is the size of a plane, it is [Plane].
//
// Quorums have at most q+1 sites, where q is the order of that plane. Up to three
// sites, which are too few for any plane, are a [Majority].
//
// It refuses no sites (ErrSize), a site given twice (ErrDuplicate), and more than
// 8192 sites (ErrTooLarge).
func Degenerate[T cmp.Ordered](sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	n, q := len(sites), 2
	if n <= 3 {
		return Majority(sites...)
	}
	f, ok := newField(q)
	for !ok || q*q+q+1 < n {
		q++
		f, ok = newField(q)
	}
	var a assembly
	return finish(&a, a.written(truncated(f.lines(), n).minimal(), leaves(n)), sites), nil
}

// truncated returns the lines of the first n points of a plane, other sites in
// the place of the other points.
func truncated(plane *family, n int) *family {
	own := match(plane.columns(), plane.len())
	lines := emptyFamily(n, n)
	duty := same(n, 0)
	through := make([][]int, plane.n) // for each point left out, the lines that stay
	for i := range n {
		line := lines.grow()
		for p := range plane.at(own[i]).each() {
			if p < n {
				line.add(p)
				duty[p]++
			} else {
				through[p] = append(through[p], i)
			}
		}
	}
	for _, lost := range through[n:] {
		if len(lost) < 2 {
			continue
		}
		stand := 0
		for i := range duty {
			if duty[i] < duty[stand] {
				stand = i
			}
		}
		for _, i := range lost {
			if !lines.at(i).has(stand) {
				lines.at(i).add(stand)
				duty[stand]++
			}
		}
	}
	return lines
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

func (f *field) inverse(a int) int {
	for b := range f.q {
		if f.multiply(a, b) == 1 {
			return b
		}
	}
	return 0
}

// noPlane says that there is no plane of n points, and which n are near.
func noPlane(n int) string {
	below, above := 0, 0
	for q := 2; above <= n; q++ {
		if _, k := primePower(q); k > 0 {
			below, above = above, q*q+q+1
		}
	}
	near := ""
	if below > 0 {
		near = strconv.Itoa(below) + " or "
	}
	return strconv.Itoa(n) + " is not q^2+q+1 for a prime power q; give " + near + strconv.Itoa(above) +
		" sites, or use Degenerate, which takes any number"
}
