package quorum

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"strconv"
)

// The laws of a coterie.
var (
	ErrEmpty        = errors.New("quorum: non-emptiness") // there is no quorum, or a quorum without sites
	ErrIntersection = errors.New("quorum: intersection")  // two quorums share no site
	ErrMinimality   = errors.New("quorum: minimality")    // a quorum contains another
)

// The other ways in which input is refused.
var (
	ErrDuplicate = errors.New("quorum: duplicate")            // a site within a quorum or a list of sites, or a quorum, is given twice
	ErrValue     = errors.New("quorum: unlawful value")       // not a number, outside its range, or a site that was not declared
	ErrSize      = errors.New("quorum: no such construction") // for so many sites, for that shape, or for those votes
	ErrTooLarge  = errors.New("quorum: too large")            // the answer exists, beyond the stated limit of the method
)

// A refusal is one of the errors above with a sentence that says what to change.
type refusal struct {
	kind error
	text string
}

func refuse(kind error, text string) error { return &refusal{kind, text} }

func (r *refusal) Error() string { return r.kind.Error() + ": " + r.text }
func (r *refusal) Unwrap() error { return r.kind }

// A Violation is a law that given quorums break, and the quorums that break it.
// As an error it answers to errors.Is for Law.
type Violation[T cmp.Ordered] struct {
	// Law is ErrEmpty, ErrValue, ErrDuplicate, ErrIntersection or ErrMinimality; or
	// ErrTooLarge, which breaks no law: there are too many sites or quorums to tell.
	Law error

	// First and Second are the places of the offending quorums among those given, from 0,
	// First < Second. Second is -1 if one quorum offends alone, and both are if there is no
	// quorum, or too many.
	First, Second int

	// Quorums are the offenders as they were given: two, one or none.
	Quorums [][]T
}

// Unwrap returns the law.
func (v *Violation[T]) Unwrap() error { return v.Law }

// Error names the law, the quorums and what to change.
func (v *Violation[T]) Error() string {
	var what string
	switch first, second := v.quorum(v.First, 0), v.quorum(v.Second, 1); {
	case v.Law == ErrTooLarge:
		what = "too many sites or quorums to compare; give at most 8192 of each" +
			" (of up to 64 sites, 92681 quorums), or put smaller coteries together by Compose"
	case v.First < 0:
		what = "no quorum is given; give at least one"
	case v.Second < 0:
		what = first + flaw(v.Law)
	case v.Law == ErrIntersection:
		what = first + " and " + second + " share no site; add one site to both"
	case v.Law == ErrMinimality && len(v.Quorums[0]) < len(v.Quorums[1]):
		what = first + " is contained in " + second + "; remove the larger, or use Minimize"
	case v.Law == ErrMinimality:
		what = first + " contains " + second + "; remove the larger, or use Minimize"
	default:
		what = first + " and " + second + " are the same quorum; remove one, or use Minimize"
	}
	return v.Law.Error() + ": " + what
}

// quorum is such as "quorum 3 {1,2}", or without the sites if they have no text.
func (v *Violation[T]) quorum(place, i int) string {
	name := "quorum " + strconv.Itoa(place)
	if i < len(v.Quorums) {
		if text := setsText(slices.Values(v.Quorums[i:i+1]), ""); text != "" {
			name += " " + text
		}
	}
	return name
}

// Check yields every way in which the quorums fail to be a coterie: first what
// single quorums do wrong, then the offending pairs, both in the order given.
// It yields nothing if and only if [New] would accept them. Quorums that are
// wrong by themselves are not compared with others.
//
// A thousand quorums of some sixty sites take milliseconds, the largest that Check compares
// some ten seconds: 8192 quorums of 8192 sites, or 92681 of up to 64. Of more it compares
// none, and yields one Violation of ErrTooLarge after those of single quorums.
func Check[T cmp.Ordered](quorums ...[]T) iter.Seq[*Violation[T]] {
	return func(yield func(*Violation[T]) bool) {
		if len(quorums) == 0 {
			yield(&Violation[T]{Law: ErrEmpty, First: -1, Second: -1})
			return
		}
		sizes := make([]int, len(quorums)) // 0 for what is not compared
		for i, q := range quorums {
			if law := alone(q); law == nil {
				sizes[i] = len(q)
			} else if !yield(&Violation[T]{Law: law, First: i, Second: -1, Quorums: [][]T{q}}) {
				return
			}
		}
		names := sites(quorums)
		if k := float64(len(quorums)); len(names) > maxSites || k*k/2*float64(words(len(names))) > maxPairs {
			yield(&Violation[T]{Law: ErrTooLarge, First: -1, Second: -1})
			return
		}
		family := numbered(quorums, names)
		for i, a := range family {
			for j := i + 1; j < len(quorums) && sizes[i] > 0; j++ {
				if sizes[j] == 0 {
					continue
				}
				law := together(a, family[j], sizes[i], sizes[j])
				if law != nil && !yield(&Violation[T]{law, i, j, [][]T{quorums[i], quorums[j]}}) {
					return
				}
			}
		}
	}
}

// alone returns what is wrong with a quorum by itself.
func alone[T cmp.Ordered](q []T) error {
	switch {
	case len(q) == 0:
		return ErrEmpty
	case slices.ContainsFunc(q, isNaN):
		return ErrValue
	case repeated(q) >= 0:
		return ErrDuplicate
	}
	return nil
}

func isNaN[T cmp.Ordered](site T) bool { return site != site }

// flaw says what is wrong with a quorum that breaks a law by itself.
func flaw(law error) string {
	switch law {
	case ErrEmpty:
		return " has no site; remove it, or every site would hold it"
	case ErrValue:
		return " has a site that is not a number (NaN); remove that site"
	}
	return " names a site twice; name each site once"
}

// together returns the law that two quorums of known sizes break: sets that do
// not meet cannot contain each other, so it is at most one.
func together(a, b set, sizeA, sizeB int) error {
	shared := a.common(b)
	switch {
	case shared == 0:
		return ErrIntersection
	case shared == sizeA && sizeA == sizeB:
		return ErrDuplicate
	case shared == min(sizeA, sizeB):
		return ErrMinimality
	}
	return nil
}

// repeated returns a place in list whose value stands earlier too, or -1.
func repeated[T cmp.Ordered](list []T) int {
	order := slices.SortedStableFunc(full(len(list)).each(), func(i, j int) int { return cmp.Compare(list[i], list[j]) })
	for k := 1; k < len(order); k++ {
		if list[order[k-1]] == list[order[k]] {
			return order[k]
		}
	}
	return -1
}

const (
	maxSites = 1 << 13 // that a builder takes, or Check
	maxPairs = 1 << 32 // that Check compares, times the words of a set
)

// distinct refuses a list of sites that is empty, too long, or names one twice.
func distinct[T cmp.Ordered](list []T) error {
	if len(list) == 0 {
		return refuse(ErrSize, "there are no sites (n = 0); give at least one")
	}
	if len(list) > maxSites {
		return refuse(ErrTooLarge, strconv.Itoa(len(list))+" sites; give at most "+strconv.Itoa(maxSites)+", or put smaller coteries together by Compose")
	}
	if i := slices.IndexFunc(list, isNaN); i >= 0 {
		return refuse(ErrValue, "site "+strconv.Itoa(i)+" is not a number (NaN); remove it")
	}
	if i := repeated(list); i >= 0 {
		return refuse(ErrDuplicate, named(i, list[i])+" is given twice; name each site once")
	}
	return nil
}

// sites returns the sites of all quorums, in order, each once, less any NaN.
func sites[T cmp.Ordered](quorums [][]T) []T {
	all := slices.DeleteFunc(slices.Concat(quorums...), isNaN)
	slices.Sort(all)
	return slices.Clip(slices.Compact(all))
}
