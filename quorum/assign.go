package quorum

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
)

// An Assignment gives each site the quorum that it asks when it wants to enter:
// the sets S(i) of Maekawa, "A sqrt(N) Algorithm for Mutual Exclusion in
// Decentralized Systems", ACM TOCS 3(2), 1985. He asks of them
//
//	M1  any two quorums share a site
//	M2  each site is in its own quorum
//	M3  all quorums have the same size
//	M4  each site is in the same number of quorums
//
// Only M1 is needed for mutual exclusion, and [Coterie.Assign] always fulfills it. M2 saves
// a message or two; M3 and M4 are fairness: equal work for all, equal duty for all.
// [Assignment.Report] says which ones an Assignment fulfills.
//
// An Assignment never changes. The zero Assignment has no sites.
type Assignment[T cmp.Ordered] struct {
	sites   []T // ascending
	quorums [][]T
}

// An Entry is a site and its quorum.
type Entry[T any] struct {
	Site   T
	Quorum []T
}

// NewAssignment returns the assignment of these entries. It refuses no entries
// (ErrSize), a site with two entries or twice in a quorum (ErrDuplicate), a
// quorum without sites (ErrEmpty), in a quorum a site that has no entry
// (ErrValue), and more than 8192 entries (ErrTooLarge).
func NewAssignment[T cmp.Ordered](entries ...Entry[T]) (Assignment[T], error) {
	var a Assignment[T]
	for _, e := range entries {
		a.sites = append(a.sites, e.Site)
	}
	if err := distinct(a.sites); err != nil {
		return Assignment[T]{}, err
	}
	slices.Sort(a.sites)
	a.quorums = make([][]T, len(entries))
	for i, e := range entries {
		of := "the quorum of " + named(i, e.Site)
		if law := alone(e.Quorum); law != nil {
			return Assignment[T]{}, refuse(law, of+flaw(law))
		}
		for k, s := range e.Quorum {
			if _, ok := slices.BinarySearch(a.sites, s); !ok {
				return Assignment[T]{}, refuse(ErrValue, named(k, s)+" in "+of+" is unknown; give it an entry too, or remove it")
			}
		}
		at, _ := slices.BinarySearch(a.sites, e.Site)
		a.quorums[at] = slices.Sorted(slices.Values(e.Quorum))
	}
	return a, nil
}

// Quorum returns the quorum of a site, its sites in ascending order, or nil if
// the site is unknown. The slice is the caller's.
func (a Assignment[T]) Quorum(site T) []T {
	if i, ok := slices.BinarySearch(a.sites, site); ok {
		return slices.Clone(a.quorums[i])
	}
	return nil
}

// All yields the sites in ascending order, each with its quorum. The slices are the
// caller's.
func (a Assignment[T]) All() iter.Seq2[T, []T] {
	return func(yield func(T, []T) bool) {
		for i, s := range a.sites {
			if !yield(s, slices.Clone(a.quorums[i])) {
				return
			}
		}
	}
}

// A Report says which of Maekawa's conditions an assignment fulfills. The lists of
// offenders are in ascending order, and empty exactly if their condition holds.
type Report[T cmp.Ordered] struct {
	Disjoint   [][2]T // M1: pairs of sites whose quorums share no site
	Outside    []T    // M2: sites that are not in their own quorum
	Unequal    []T    // M3: sites whose quorum is not of size Size
	Unbalanced []T    // M4: sites whose duty is not Duty

	Size int // the most frequent size of a quorum; of equals the smallest
	Duty int // the most frequent number of quorums that a site is in, likewise
}

// Report examines the assignment.
func (a Assignment[T]) Report() Report[T] {
	var (
		r     Report[T]
		f     = numbered(a.quorums, a.sites)
		sizes = make([]int, len(a.sites))
		duty  = make([]int, len(a.sites))
	)
	for i, q := range f {
		sizes[i] = q.count()
		for s := range q.each() {
			duty[s]++
		}
		if !q.has(i) {
			r.Outside = append(r.Outside, a.sites[i])
		}
		for j := i + 1; j < len(f); j++ {
			if f[j].common(q) == 0 {
				r.Disjoint = append(r.Disjoint, [2]T{a.sites[i], a.sites[j]})
			}
		}
	}
	r.Size, r.Duty = mode(sizes), mode(duty)
	for i, s := range a.sites {
		if sizes[i] != r.Size {
			r.Unequal = append(r.Unequal, s)
		}
		if duty[i] != r.Duty {
			r.Unbalanced = append(r.Unbalanced, s)
		}
	}
	return r
}

// mode returns the most frequent number, of equals the smallest. None exceeds the list's
// length.
func mode(list []int) int {
	tally := make([]int, len(list)+1)
	for _, v := range list {
		tally[v]++
	}
	return slices.Index(tally, slices.Max(tally))
}

// String returns a line for each condition: that it holds, or which sites offend.
func (r Report[T]) String() string {
	var pairs [][]T
	for _, p := range r.Disjoint {
		pairs = append(pairs, p[:])
	}
	each := func(list []T) [][]T { return slices.Collect(slices.Chunk(list, 1)) }
	return verdict("M1 (any two share a site)", pairs) +
		verdict("M2 (own membership)", each(r.Outside)) +
		verdict("M3 (equal size "+strconv.Itoa(r.Size)+")", each(r.Unequal)) +
		verdict("M4 (equal duty "+strconv.Itoa(r.Duty)+")", each(r.Unbalanced))
}

func verdict[T cmp.Ordered](condition string, offenders [][]T) string {
	if len(offenders) == 0 {
		return condition + ": yes\n"
	}
	n := strconv.Itoa(len(offenders))
	return condition + ": no: " + cmp.Or(setsText(slices.Values(offenders), n), n+" offend") + "\n"
}

const (
	matchable   = 1 << 12 // quorums among which Assign first seeks one for each site
	assignTurns = 8       // times that every site may choose anew
	certain     = 1 << 40 // what a site saves by asking itself: more than all others cost
)

// Assign gives a quorum to each site of c, and to others that take part without
// having a say (the clients of a central coordinator); sites of c among the others are
// no mistake. Each site of c gets a quorum that contains it, where c has one.
//
// The quorums are chosen for equal duty: first, if there are at most 4096, as many sites as
// possible get a quorum of their own (a matching; in a plane all sites do), then each site
// in turn, while that helps, takes a quorum whose members have least duty, at most 8 times.
// The result is the same each time. That M4 holds is proved only in special cases (a plane,
// a full grid, a majority): see [Assignment.Report]. A grid of 4096 sites takes less than a
// second, one of 8192, which is as large as builders go, some seconds.
//
// It refuses the zero Coterie (ErrEmpty) and an other that is not a number (ErrValue).
func (c Coterie[T]) Assign(others ...T) (Assignment[T], error) {
	if c.under == nil {
		return Assignment[T]{}, refuse(ErrEmpty, "the zero Coterie has no quorum to assign; make one with New or a builder")
	}
	if i := slices.IndexFunc(others, isNaN); i >= 0 {
		return Assignment[T]{}, refuse(ErrValue, "site "+strconv.Itoa(i)+" of the others is not a number (NaN); remove it")
	}
	a := Assignment[T]{sites: sites([][]T{c.sites, others})}
	var askers []int
	for _, s := range a.sites {
		k, ok := slices.BinarySearch(c.sites, s)
		if !ok {
			k = -1
		}
		askers = append(askers, k)
	}
	for _, q := range c.assign(askers) {
		a.quorums = append(a.quorums, c.members(q))
	}
	return a, nil
}

// assign returns a quorum for each asker: a site, or -1 for a node that is none.
func (c Coterie[T]) assign(askers []int) []set {
	var (
		duty   = make([]float64, len(c.sites))
		chosen = c.matched(askers)
		count  = func(q set, by float64) {
			for i := range q.each() {
				duty[i] += by
			}
		}
	)
	for _, q := range chosen {
		count(q, 1)
	}
	// What a site adds to the sum of the squares of all duties is 2*duty+1 for
	// each member: that sum falls with every change, so that the turns end.
	cost := make([]float64, len(c.sites))
	for range assignTurns {
		changed := false
		for i, asker := range askers {
			count(chosen[i], -1)
			for k, d := range duty {
				cost[k] = 2*d + 1
			}
			if asker >= 0 {
				cost[asker] -= certain
			}
			q, least := c.under.cheapest(cost)
			if chosen[i] == nil || least < chosen[i].sum(cost) {
				chosen[i], changed = q, true
			}
			count(chosen[i], 1)
		}
		if !changed {
			break
		}
	}
	return chosen
}

// matched gives each asker, as far as possible, a quorum that contains it and that no other
// asker has, by augmenting paths (Kuhn, "The Hungarian Method for the Assignment Problem",
// 1955, without weights). Where all sites are in equally many quorums, and these equally
// large, as in a plane, every site gets one (Konig, 1916).
func (c Coterie[T]) matched(askers []int) []set {
	chosen := make([]set, len(askers))
	if c.Len() > matchable {
		return chosen
	}
	var listed []set
	for q := range c.under.expand(len(c.sites), gate.quorums) {
		listed = append(listed, slices.Clone(q))
	}
	var (
		column = columns(listed, len(c.sites))
		owner  = same(len(listed), -1)
		seen   = newSet(len(listed))
		find   func(i int) bool
	)
	find = func(i int) bool {
		for _, free := range []bool{true, false} {
			for q := range column[askers[i]].each() {
				if free != (owner[q] < 0) || seen.has(q) {
					continue
				}
				seen.add(q)
				if free || find(owner[q]) {
					owner[q], chosen[i] = i, listed[q]
					return true
				}
			}
		}
		return false
	}
	for i, asker := range askers {
		if asker >= 0 {
			clear(seen)
			find(i)
		}
	}
	return chosen
}
