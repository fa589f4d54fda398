package quorum

import "cmp"

// A Construction is a builder that needs nothing but sites: a name, and a
// function that refuses a number of sites for which it does not exist (ErrSize).
type Construction[T cmp.Ordered] struct {
	Name  string
	Build func(sites ...T) (Coterie[T], error)
}

// Constructions returns the builders of this package, each with the usual shape:
// grids near a square, binary trees, a hierarchy of threes, the triangular wall,
// the first site as center and as hub. Weighted voting, walls of given widths and
// composition are not among them, because a number of sites does not determine them.
func Constructions[T cmp.Ordered]() []Construction[T] {
	central := func(sites ...T) (Coterie[T], error) {
		if err := distinct(sites); err != nil {
			return Coterie[T]{}, err
		}
		return Majority(sites[0])
	}
	return []Construction[T]{
		{"central", central},
		{"majority", Majority[T]},
		{"grid", func(sites ...T) (Coterie[T], error) { return Grid(0, sites...) }},
		{"fpp", Plane[T]},
		{"tree", func(sites ...T) (Coterie[T], error) { return Tree(0, sites...) }},
		{"hqc", func(sites ...T) (Coterie[T], error) { return Hierarchical(0, sites...) }},
		{"wheel", Wheel[T]},
		{"wall", func(sites ...T) (Coterie[T], error) { return Wall(nil, sites...) }},
	}
}
