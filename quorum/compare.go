package quorum

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
)

// A Construction is a builder that needs nothing but sites: a name, and a
// function that refuses a number of sites for which it does not exist (ErrSize).
type Construction[T cmp.Ordered] struct {
	Name  string
	Build func(sites ...T) (Coterie[T], error)
}

// Constructions returns the builders of this package, each with the usual shape:
// grids near a square, binary trees, a hierarchy of threes, the triangular wall,
// the first site as centre and as hub. Weighted voting, walls of given widths and
// composition are not among them, since they say more than a number can.
func Constructions[T cmp.Ordered]() []Construction[T] {
	hub := func(of func(hub T, rim []T) (Coterie[T], error)) func(sites ...T) (Coterie[T], error) {
		return func(sites ...T) (Coterie[T], error) {
			if err := distinct(sites); err != nil {
				return Coterie[T]{}, err
			}
			return of(sites[0], sites[1:])
		}
	}
	return []Construction[T]{
		{"central", hub(func(centre T, _ []T) (Coterie[T], error) { return Singleton(centre) })},
		{"majority", Majority[T]},
		{"grid", SquareGrid[T]},
		{"rowgrid", func(sites ...T) (Coterie[T], error) { return RowGrid(broad(len(sites)), sites...) }},
		{"fpp", Plane[T]},
		{"degenerate", Degenerate[T]},
		{"tree", func(sites ...T) (Coterie[T], error) { return Tree(2, sites...) }},
		{"hqc", func(sites ...T) (Coterie[T], error) { return Hierarchical(3, sites...) }},
		{"wheel", hub(func(hub T, rim []T) (Coterie[T], error) { return Wheel(hub, rim...) })},
		{"wall", TriangularWall[T]},
	}
}

// broad returns ceil(sqrt(n)) columns, or one more where the last row would be a
// single site, without which there would be no quorum.
func broad(n int) int {
	columns := max(1, root(n))
	if columns > 1 && n%columns == 1 {
		columns++
	}
	return columns
}

// A Row is what [Compare] tells of a construction.
type Row struct {
	Name    string
	Coterie Coterie[int] // over the sites 1, ..., n

	Smallest, Largest int    // sizes of quorums
	Load              Bounds // see [Coterie.Load]

	// Resilience is what [Coterie.Resilience] returns: two numbers that are
	// equal where it is known exactly.
	Resilience [2]int

	// Availability is that of [Coterie.AvailabilityAt], or zero if no
	// probability was given.
	Availability Estimate

	// Messages is the mean number of messages per entry in Maekawa's algorithm,
	// without contention, over all n sites and the quorums that [Coterie.Assign]
	// gives them: a request, a reply and a release for each other site in the
	// quorum. Contention at most doubles it.
	Messages float64
}

// maxCompared bounds the sites that Compare takes.
const maxCompared = 1 << 10

// Compare builds every construction that exists for n sites and returns their
// measures, the best first. With up, the probability that a site is up, once for
// all sites or once for each of the sites 1, ..., n, the best is the one most
// available (by the lower bound, where it is sampled), and of equals the one with
// fewest messages. Without, it is the one with fewest messages, and of equals the
// one with least load.
//
// Nobody is best in everything: what is small is seldom available. Read the
// table as a menu.
//
// It takes some seconds for hundreds of sites, and up to a minute for 1024.
//
// It refuses an n below 1 (ErrSize) or above 1024 (ErrTooLarge), and
// probabilities that are outside [0, 1], or neither none nor one nor n
// (ErrProbability).
func Compare(n int, up ...float64) ([]Row, error) {
	switch {
	case n < 1:
		return nil, refuse(ErrSize, strconv.Itoa(n)+" sites; give at least one")
	case n > maxCompared:
		return nil, refuse(ErrTooLarge, strconv.Itoa(n)+" sites; compare at most "+strconv.Itoa(maxCompared))
	case len(up) > 1 && len(up) != n:
		return nil, refuse(ErrProbability, strconv.Itoa(len(up))+" of them for "+strconv.Itoa(n)+" sites; give one for all, or one for each")
	}
	for i, p := range up {
		if !(p >= 0 && p <= 1) {
			return nil, refuse(ErrProbability, "site "+strconv.Itoa(i+1)+" is up with probability "+
				strconv.FormatFloat(p, 'g', -1, 64)+"; give a number from 0 to 1")
		}
	}
	sites := make([]int, n)
	for i := range sites {
		sites[i] = i + 1
	}
	var rows []Row
	for _, k := range Constructions[int]() {
		c, err := k.Build(sites...)
		if errors.Is(err, ErrSize) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if k.Name == "degenerate" && slices.ContainsFunc(rows, func(r Row) bool { return r.Name == "fpp" }) {
			continue // it is the plane
		}
		row, err := measure(k.Name, c, sites, up)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(
			cmp.Compare(b.Availability.Low, a.Availability.Low),
			cmp.Compare(a.Messages, b.Messages),
			cmp.Compare(a.Load.High, b.Load.High))
	})
	return rows, nil
}

func measure(name string, c Coterie[int], sites []int, up []float64) (Row, error) {
	row := Row{Name: name, Coterie: c, Smallest: c.Smallest(), Largest: c.Largest(), Load: c.Load()}
	row.Resilience[0], row.Resilience[1] = c.Resilience()
	assigned, err := c.Assign(sites...)
	if err != nil {
		return Row{}, err
	}
	for i, q := range assigned.quorums {
		row.Messages += 3 * float64(len(q)) / float64(len(sites))
		if slices.Contains(q, assigned.sites[i]) {
			row.Messages -= 3 / float64(len(sites))
		}
	}
	if len(up) > 0 {
		row.Availability, err = c.AvailabilityAt(func(site int) float64 { return up[(site-1)%len(up)] })
	}
	return row, err
}
