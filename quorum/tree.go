package quorum

import (
	"cmp"
	"strconv"
)

// Tree returns the coterie of the tree quorum protocol. The sites are laid level
// by level into a tree of the given degree (0 means 2), the first site as root. A quorum is
// a path from the root to a leaf; a site on it that is down is replaced by paths
// from all of its children to leaves. So a tree is a [Wheel] of the root and the subtrees.
//
// Agrawal and El Abbadi, "An Efficient and Fault-Tolerant Solution for
// Distributed Mutual Exclusion", ACM TOCS 9(1), 1991 (binary trees), and "The
// Generalized Tree Quorum Protocol", ACM TODS 17(4), 1992.
//
// A full binary tree of h levels has quorums of h to 2^(h-1) sites, resilience
// h-1, and load 2/(h+1). A tree is non-dominated.
//
// A site with one child would occur in no quorum. So if the last level leaves one child
// alone, it becomes a child of its parent's left neighbor. Only for n = 2 is there no
// neighbor, and the coterie is the second site alone.
//
// It refuses any other degree below 2 (ErrSize).
func Tree[T cmp.Ordered](degree int, sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	if degree = cmp.Or(degree, 2); degree < 2 {
		return Coterie[T]{}, refuse(ErrSize, "a tree of degree "+strconv.Itoa(degree)+"; give its sites at least two children")
	}
	n := len(sites)
	degree = min(degree, max(2, n))
	subtree := leaves(n)
	for i := n - 1; i >= 0; i-- {
		first, last := min(degree*i+1, n), min(degree*i+degree+1, n)
		switch {
		case first == n-1 && i > 0:
			last = first // its left neighbor has the one child
		case last == n-1:
			last = n
		}
		subtree[i] = wheel(subtree[i], subtree[first:last])
	}
	return finish(subtree[0], sites), nil
}

// Hierarchical returns the coterie of hierarchical quorum consensus: the sites
// are the leaves of a tree in which every group divides into degree groups (0 means 3) of
// nearly equal size, and so on down to single sites. A quorum of a group is a
// quorum of a majority of its groups.
//
// Kumar, "Hierarchical Quorum Consensus: A New Algorithm for Managing Replicated
// Data", IEEE Transactions on Computers 40(9), 1991.
//
// With n = d^k sites, d odd, all quorums have ((d+1)/2)^k sites, n^0.63 for
// d = 3; the load is ((d+1)/(2d))^k, the resilience ((d+1)/2)^k - 1, and the
// coterie is non-dominated. Groups of even size make it dominated.
//
// It refuses any other degree below 2 (ErrSize).
func Hierarchical[T cmp.Ordered](degree int, sites ...T) (Coterie[T], error) {
	if err := distinct(sites); err != nil {
		return Coterie[T]{}, err
	}
	if degree = cmp.Or(degree, 3); degree < 2 {
		return Coterie[T]{}, refuse(ErrSize, "groups of "+strconv.Itoa(degree)+"; divide by at least two")
	}
	var group func(in []*system) *system
	group = func(in []*system) *system {
		if len(in) == 1 {
			return in[0]
		}
		parts := min(degree, len(in))
		var groups []*system
		for i := range parts {
			groups = append(groups, group(in[share(i, parts, len(in)):share(i+1, parts, len(in))]))
		}
		return voting(same(parts, 1), parts/2+1, groups)
	}
	return finish(group(leaves(len(sites))), sites), nil
}

// share returns where part i begins when n are divided into parts, the first ones larger.
func share(i, parts, n int) int {
	return i*(n/parts) + min(i, n%parts)
}

// Compose returns the composition of coteries: outer's sites are replaced by
// coteries, and a quorum is a quorum of every part in a quorum of outer. So
// "two of three data centers, and a majority in each of these" is
//
//	Compose(centers, func(center string) Coterie[string] { return within[center] })
//
// It calls part once for each site of outer, in order. A composition of coteries
// is a coterie, and it is non-dominated exactly if all of them are.
//
// Neilsen and Mizuno, "Coterie Join Algorithm", IEEE TPDS 3(5), 1992; for simple
// games, Shapley, "Simple Games: An Outline of the Descriptive Theory", 1962.
//
// It refuses a zero Coterie (ErrEmpty) and parts that share a site (ErrDuplicate).
func Compose[K, T cmp.Ordered](outer Coterie[K], part func(site K) Coterie[T]) (Coterie[T], error) {
	if outer.under == nil {
		return Coterie[T]{}, refuse(ErrEmpty, "the outer coterie has no quorum; make it with New or a builder")
	}
	var (
		names []T
		parts []*system
	)
	for i, site := range outer.sites {
		c := part(site)
		if c.under == nil {
			return Coterie[T]{}, refuse(ErrEmpty, "the part for "+named(i, site)+" has no quorum; make it with New or a builder")
		}
		names = append(names, c.sites...)
		parts = append(parts, c.under.replace(leaves(len(names))[len(names)-len(c.sites):]))
	}
	if i := repeated(names); i >= 0 {
		return Coterie[T]{}, refuse(ErrDuplicate, named(i, names[i])+" is in two parts; let each site be in one")
	}
	return finish(outer.under.replace(parts), names), nil
}
