package quorum

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dmutex/dmutex/quorum"
)

// A row is what compare prints about a construction.
type row struct {
	name       string
	coterie    quorum.Coterie[int] // over the sites 1, ..., n
	size       [2]int
	load       [2]float64 // equal where it is known exactly
	resilience [2]int     // likewise

	// available is zero if no probability was given.
	available quorum.Estimate

	// messages is the mean number of messages per entry in Maekawa's algorithm,
	// without contention, over all n sites and the quorums that Assign gives
	// them: a request, a reply and a release for each other site in the quorum.
	messages float64
}

// compare builds every construction that exists for n sites and measures it, the
// best first. With up, the probability that a site is up, once for all sites or
// once for each of the sites 1, ..., n, the best is the most available (by the
// lower bound, where it is sampled), and among equals the one with the fewest
// messages. Without, it is the one with the fewest messages, and among equals the
// one with the least load.
func compare(n int, up []float64) ([]row, error) {
	sites := sitesTo(n)
	var rows []row
	for _, k := range quorum.Constructions[int]() {
		c, err := k.Build(sites...)
		if errors.Is(err, quorum.ErrSize) {
			continue
		}
		if err != nil {
			return nil, err
		}
		r, err := measure(k.Name, c, sites, up)
		if err != nil {
			return nil, err
		}
		rows = append(rows, r)
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(
			cmp.Compare(b.available.Low, a.available.Low),
			cmp.Compare(a.messages, b.messages),
			cmp.Compare(a.load[1], b.load[1]))
	})
	return rows, nil
}

func measure(name string, c quorum.Coterie[int], sites []int, up []float64) (row, error) {
	r := row{name: name, coterie: c}
	r.size[0], r.size[1] = c.Size()
	r.load[0], r.load[1] = c.Load()
	r.resilience[0], r.resilience[1] = c.Resilience()
	assigned, err := c.Assign(sites...)
	if err != nil {
		return row{}, err
	}
	asked := 0
	for site, q := range assigned.All() {
		asked += len(q)
		if slices.Contains(q, site) {
			asked-- // no message to oneself
		}
	}
	r.messages = 3 * float64(asked) / float64(len(sites))
	if len(up) > 0 {
		var p []float64 // of the sites that occur in a quorum
		for _, site := range c.Sites() {
			p = append(p, up[(site-1)%len(up)])
		}
		r.available, err = c.Availability(p...)
	}
	return r, err
}

// sitesTo returns the sites 1 to n.
func sitesTo(n int) []int {
	sites := make([]int, n)
	for i := range sites {
		sites[i] = i + 1
	}
	return sites
}
