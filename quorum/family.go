package quorum

import (
	"cmp"
	"iter"
	"slices"
)

// A family is a list of sets over the same n members, in one piece of memory.
type family struct {
	n, count, width int
	bits            []uint64
}

func emptyFamily(n, capacity int) *family {
	return &family{n: n, width: words(n), bits: make([]uint64, 0, capacity*words(n))}
}

// newFamily numbers the sites by their place in names, which is sorted. Sites
// that are not there (a NaN) are left out.
func newFamily[T cmp.Ordered](quorums [][]T, names []T) *family {
	f := emptyFamily(len(names), len(quorums))
	for _, q := range quorums {
		s := f.grow()
		for _, site := range q {
			if i, ok := slices.BinarySearch(names, site); ok {
				s.add(i)
			}
		}
	}
	return f
}

func (f *family) len() int { return f.count }

func (f *family) at(i int) set { return f.bits[i*f.width : (i+1)*f.width : (i+1)*f.width] }

// grow appends an empty set and returns it, to be filled before the next grow.
func (f *family) grow() set {
	for range f.width {
		f.bits = append(f.bits, 0)
	}
	f.count++
	return f.at(f.count - 1)
}

func (f *family) push(s set) { copy(f.grow(), s) }

func (f *family) all() iter.Seq2[int, set] {
	return func(yield func(int, set) bool) {
		for i := range f.len() {
			if !yield(i, f.at(i)) {
				return
			}
		}
	}
}

// holds reports whether some set of the family is within up.
func (f *family) holds(up set) bool {
	for i := range f.len() {
		if f.at(i).within(up) {
			return true
		}
	}
	return false
}

// minimal returns the sets that contain no other, each once, in order of
// [set.compare].
func (f *family) minimal() *family {
	order := make([]int, f.len())
	sizes := make([]int, f.len())
	for i, s := range f.all() {
		order[i], sizes[i] = i, s.count()
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(sizes[i], sizes[j]) })
	kept := emptyFamily(f.n, f.len())
	for _, i := range order {
		if !kept.holds(f.at(i)) {
			kept.push(f.at(i))
		}
	}
	return kept.sorted()
}

// sorted returns the same sets in order of [set.compare].
func (f *family) sorted() *family {
	order := make([]int, f.len())
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return f.at(i).compare(f.at(j)) })
	sorted := emptyFamily(f.n, f.len())
	for _, i := range order {
		sorted.push(f.at(i))
	}
	return sorted
}

// columns returns, for each member, the set of those sets that contain it.
func (f *family) columns() *family {
	t := emptyFamily(f.len(), f.n)
	for range f.n {
		t.grow()
	}
	for i, s := range f.all() {
		for m := range s.each() {
			t.at(m).add(i)
		}
	}
	return t
}
