package quorum

import (
	"cmp"
	"errors"
	"slices"

	"github.com/dmutex/dmutex/quorum"
)

// A row is what compare prints about a construction.
type row struct {
	Construction string           `json:"construction"`
	Quorums      int              `json:"quorums"` // at most the largest int
	Size         [2]int           `json:"size"`
	Load         [2]float64       `json:"load"`                   // equal where it is known exactly
	Resilience   [2]int           `json:"resilience"`             // likewise
	Availability *quorum.Estimate `json:"availability,omitempty"` // nil if no probability was given

	// Messages is the mean number of messages per entry in Maekawa's algorithm without
	// contention: a request, a reply and a release for each other site in the quorum.
	Messages float64 `json:"messages"`
}

// compare builds every construction that exists for n sites and measures it, the best
// first: by messages, then load. With up, the probability that a site is up, once for all
// sites or once for each of the sites 1, ..., n, availability (the lower bound, where it is
// sampled) comes before them.
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
		ranked := cmp.Or(cmp.Compare(a.Messages, b.Messages), cmp.Compare(a.Load[1], b.Load[1]))
		if len(up) > 0 {
			ranked = cmp.Or(cmp.Compare(b.Availability.Low, a.Availability.Low), ranked)
		}
		return ranked
	})
	return rows, nil
}

func measure(name string, c quorum.Coterie[int], sites []int, up []float64) (row, error) {
	r := row{Construction: name, Quorums: c.Len()}
	r.Size[0], r.Size[1] = c.Size()
	r.Load[0], r.Load[1] = c.Load()
	r.Resilience[0], r.Resilience[1] = c.Resilience()
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
	r.Messages = 3 * float64(asked) / float64(len(sites))
	if len(up) > 0 {
		var p []float64 // of the sites that occur in a quorum
		for _, site := range c.Sites() {
			p = append(p, up[(site-1)%len(up)])
		}
		a, err := c.Availability(p...)
		r.Availability = &a
		return r, err
	}
	return r, nil
}

// sitesTo returns the sites 1 to n.
func sitesTo(n int) []int {
	sites := make([]int, n)
	for i := range sites {
		sites[i] = i + 1
	}
	return sites
}
