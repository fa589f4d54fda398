package quorum

import (
	"cmp"
	"iter"
	"math"
	"math/bits"
	"slices"
)

// A Coterie is a set of quorums over sites of type T that obeys the three laws:
// non-emptiness, intersection and minimality. It never changes, and is safe for concurrent
// use.
//
// Its sites are those that occur in some quorum. The zero Coterie has neither
// quorums nor sites; every method accepts it.
//
// Garcia-Molina and Barbara, "How to Assign Votes in a Distributed System",
// Journal of the ACM 32(4), 1985.
type Coterie[T cmp.Ordered] struct {
	sites []T // ascending
	under *system
}

// New returns the coterie of these quorums; their order and that of their sites do
// not matter. If they are not a coterie, or more than [Check] takes (ErrTooLarge), the
// error is the first [*Violation] that Check yields.
func New[T cmp.Ordered](quorums ...[]T) (Coterie[T], error) {
	for v := range Check(quorums...) {
		return Coterie[T]{}, v
	}
	names := sites(quorums)
	return finish(written(numbered(quorums, names), leaves(len(names))), names), nil
}

// Minimize returns the coterie of those quorums that contain no other, each once. It
// refuses what [New] refuses, except quorums that contain or repeat others.
func Minimize[T cmp.Ordered](quorums ...[]T) (Coterie[T], error) {
	for v := range Check(quorums...) {
		if v.Law != ErrMinimality && (v.Law != ErrDuplicate || v.Second < 0) {
			return Coterie[T]{}, v
		}
	}
	all := Coterie[T]{sites: sites(quorums)}
	var kept [][]T
	for _, q := range minimal(numbered(quorums, all.sites)) {
		kept = append(kept, all.members(q))
	}
	return New(kept...)
}

// written returns the system of a lawful family in which every input occurs.
func written(family []set, in []*system) *system {
	if len(in) == 1 {
		return in[0]
	}
	slices.SortFunc(family, set.compare)
	return &system{gate: newList(family, len(in)), in: in}
}

// finish returns the coterie of a system, site i being names[i] if it occurs there.
func finish[T cmp.Ordered](s *system, names []T) Coterie[T] {
	occur := newSet(len(names))
	s.mark(occur)
	var c Coterie[T]
	leaf := make([]*system, len(names))
	for _, i := range slices.SortedFunc(occur.each(), func(i, j int) int { return cmp.Compare(names[i], names[j]) }) {
		leaf[i] = &system{site: len(c.sites)}
		c.sites = append(c.sites, names[i])
	}
	c.under = s.replace(leaf)
	return c
}

func (c Coterie[T]) system() *system {
	if c.under == nil {
		return nothing
	}
	return c.under
}

func (c Coterie[T]) members(s set) []T {
	list := make([]T, 0, s.count())
	for i := range s.each() {
		list = append(list, c.sites[i])
	}
	return list
}

func (c Coterie[T]) named(sets iter.Seq[set]) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for s := range sets {
			if !yield(c.members(s)) {
				return
			}
		}
	}
}

// Sites returns the sites that occur in some quorum, ascending. The slice is the caller's.
func (c Coterie[T]) Sites() []T { return slices.Clone(c.sites) }

// Quorums yields every quorum once, its sites in ascending order; each slice is
// the caller's. The order of the quorums is the same each time. Some coteries
// have far too many to go through: see [Coterie.Len].
func (c Coterie[T]) Quorums() iter.Seq[[]T] {
	return c.named(c.system().expand(len(c.sites), gate.quorums))
}

// Len counts the quorums without going through them, up to the largest int.
func (c Coterie[T]) Len() int { return fold(c.system(), same(len(c.sites), 1), gate.count) }

// HasQuorum reports whether the sites contain a quorum of c. Values that are not
// sites of c count for nothing, and a site counts once.
func (c Coterie[T]) HasQuorum(sites ...T) bool {
	return c.system().holds(numbered([][]T{sites}, c.sites)[0])
}

// Size returns the size of a smallest quorum and of a largest one; 0 for the zero Coterie.
func (c Coterie[T]) Size() (smallest, largest int) {
	few, _ := c.system().cheapest(same(len(c.sites), 1.0))
	many, _ := c.system().cheapest(same(len(c.sites), -1.0))
	return few.count(), many.count()
}

var inf = math.Inf(1)

// plus and times stop at the largest int. Their arguments are not negative.
func plus(a, b int) int {
	if a > math.MaxInt-b {
		return math.MaxInt
	}
	return a + b
}

func times(a, b int) int {
	high, low := bits.Mul(uint(a), uint(b))
	if high != 0 || low > math.MaxInt {
		return math.MaxInt
	}
	return int(low)
}
