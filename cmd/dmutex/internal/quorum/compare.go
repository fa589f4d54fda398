package quorum

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

type compareCmd struct {
	N      int       `name:"n" help:"Number of sites, 1 to 1024."`
	P      []float64 `name:"p" help:"Probability that a site is up, from 0 to 1: one for all sites, or one for each. With it the table is ranked by availability, without it by messages."`
	Format string    `default:"table" enum:"table,csv,json" help:"Output: table, csv or json."`
}

func (compareCmd) Help() string {
	return `size: the sites of a quorum. load: how often the busiest site must be asked when quorums are chosen in the best way (the optimum of a linear program). ` +
		`survives: how many crashes, of any sites, leave a quorum. available: how likely a quorum is up. ` +
		`messages: per entry of Maekawa's algorithm, without contention; contention at most doubles them.

If an exact answer would take too long, two numbers are bounds, and ± is the half width of a 99 percent confidence interval.`
}

func (c *compareCmd) Validate() error {
	switch {
	case c.N == 0:
		return errors.New("--n is missing: choose 1 to 1024 sites")
	case c.N < 1 || c.N > 1024:
		return fmt.Errorf("--n=%d: choose 1 to 1024 sites", c.N)
	case len(c.P) > 1 && len(c.P) != c.N:
		return fmt.Errorf("--p has %d probabilities: give one, or one for each of %d sites", len(c.P), c.N)
	}
	for _, p := range c.P {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("--p=%v: choose from 0 to 1", p)
		}
	}
	return nil
}

func (c *compareCmd) Run(con *tool.Console) error {
	rows, err := compare(c.N, c.P)
	switch {
	case err != nil:
		return err
	case c.Format == "json":
		return tool.PrintJSON(con.Out, rows)
	case c.Format == "csv":
		return writeCSV(con.Out, rows)
	}
	columns := []string{"construction", "quorums", "size", "load", "survives"}
	if len(c.P) > 0 {
		columns = append(columns, "available")
	}
	var cells [][]string
	for _, r := range rows {
		line := []string{r.Construction, count(r.Quorums), span(r.Size[0], r.Size[1]), bounds(r.Load[0], r.Load[1]), span(r.Resilience[0], r.Resilience[1])}
		if r.Availability != nil {
			line = append(line, estimate(*r.Availability))
		}
		cells = append(cells, append(line, fmt.Sprintf("%.1f", r.Messages)))
	}
	tool.Tabulate(con, []tool.Heading{{Columns: append(columns, "messages")}}, cells)
	return nil
}

// count writes a number of quorums: in full, or roughly, or as a lower bound.
func count(n int) string {
	switch {
	case n < 1_000_000:
		return strconv.Itoa(n)
	case n == math.MaxInt:
		return fmt.Sprintf(">%.0e", float64(n))
	}
	return fmt.Sprintf("%.1e", float64(n))
}

func writeCSV(out io.Writer, rows []row) error {
	head := []string{"construction", "quorums", "smallest", "largest", "load_low", "load_high", "resilience_low", "resilience_high"}
	if rows[0].Availability != nil {
		head = append(head, "availability", "availability_low", "availability_high", "samples")
	}
	lines := [][]string{append(head, "messages")}
	for _, r := range rows {
		values := []any{r.Construction, r.Quorums, r.Size[0], r.Size[1], r.Load[0], r.Load[1], r.Resilience[0], r.Resilience[1]}
		if a := r.Availability; a != nil {
			values = append(values, a.Value, a.Low, a.High, a.Samples)
		}
		var line []string
		for _, v := range append(values, r.Messages) {
			line = append(line, fmt.Sprint(v))
		}
		lines = append(lines, line)
	}
	return csv.NewWriter(out).WriteAll(lines)
}

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

func sitesTo(n int) []int {
	sites := make([]int, n)
	for i := range sites {
		sites[i] = i + 1
	}
	return sites
}
