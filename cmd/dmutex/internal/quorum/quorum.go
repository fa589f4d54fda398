// Package quorum builds, checks and compares coteries.
package quorum

import (
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

// Cmd is dmutex quorum.
type Cmd struct {
	Build   buildCmd   `cmd:"" help:"Print the quorums of a construction."`
	Check   checkCmd   `cmd:"" help:"Say whether a file is a coterie, what is wrong if not, and what it is worth."`
	Compare compareCmd `cmd:"" help:"Compare all constructions for a number of sites."`
}

// Help is the text of quorum --help.
func (Cmd) Help() string {
	return `A quorum is a group of sites that may act for all. In a coterie, a set of quorums, any two quorums share a site, ` +
		`so that no two can act at once, and no quorum contains another.`
}

type buildCmd struct {
	Kind      string `required:"" help:"Construction: ${constructions} or weighted."`
	N         int    `name:"n" help:"Number of sites, which are called 1, 2, ..., n. Not for weighted, whose votes determine it, and not needed with --widths."`
	Columns   int    `help:"Columns of a grid; the default is about sqrt(n)."`
	Degree    int    `help:"Children of a site in a tree (default 2), or groups of a group in hqc (default 3)."`
	Widths    []int  `help:"Widths of the rows of a wall, the top row first; the default is 1,2,3,..."`
	Votes     []int  `help:"Votes of the sites, for weighted."`
	Threshold int    `help:"Votes that a quorum must have, for weighted; the default is more than half."`
	Assign    bool   `help:"Instead, print a quorum for each site, and which of Maekawa's conditions hold."`
	JSON      bool   `name:"json" help:"Print JSON: a list of quorums, or with --assign an object with a quorum for each site."`

	coterie quorum.Coterie[int]
}

// build makes the construction with the given sites, in the shape that the options
// choose or in its usual one.
func (c *buildCmd) build(sites []int) (quorum.Coterie[int], error) {
	switch c.Kind {
	case "grid":
		return quorum.Grid(c.Columns, sites...)
	case "tree":
		return quorum.Tree(c.Degree, sites...)
	case "hqc":
		return quorum.Hierarchical(c.Degree, sites...)
	case "wall":
		return quorum.Wall(c.Widths, sites...)
	case "weighted":
		var votes []quorum.Vote[int]
		total := 0
		for i, v := range c.Votes {
			votes = append(votes, quorum.Vote[int]{Site: i + 1, Votes: v})
			total += v
		}
		return quorum.Weighted(cmp.Or(c.Threshold, total/2+1), votes...)
	}
	all := quorum.Constructions[int]()
	i := slices.IndexFunc(all, func(k quorum.Construction[int]) bool { return k.Name == c.Kind })
	return all[i].Build(sites...)
}

const (
	maxBuilt   = 4096    // sites
	maxPrinted = 1 << 20 // quorums
)

// Validate builds the coterie: if that fails, the mistake is in the command line.
func (c *buildCmd) Validate() error {
	kinds := tool.ConstructionNames() + ", weighted"
	switch {
	case c.Kind == "":
		return fmt.Errorf("--kind is missing: choose one of %s", kinds)
	case !slices.Contains(strings.Split(kinds, ", "), c.Kind):
		return fmt.Errorf("--kind=%s: choose one of %s", c.Kind, kinds)
	case c.N != 0 && c.Kind == "weighted":
		return errors.New("--n is not for --kind=weighted")
	}
	for _, o := range []struct {
		name  string
		given bool
		kinds []string
	}{
		{"columns", c.Columns != 0, []string{"grid"}},
		{"degree", c.Degree != 0, []string{"tree", "hqc"}},
		{"widths", c.Widths != nil, []string{"wall"}},
		{"votes", c.Votes != nil, []string{"weighted"}},
		{"threshold", c.Threshold != 0, []string{"weighted"}},
	} {
		if o.given && !slices.Contains(o.kinds, c.Kind) {
			return fmt.Errorf("--%s is not for --kind=%s", o.name, c.Kind)
		}
	}
	if c.N == 0 {
		for _, w := range c.Widths {
			c.N += max(0, min(w, maxBuilt)) // quorum.Wall refuses other widths
		}
	}
	switch {
	case c.Kind == "weighted" && c.Votes == nil:
		return errors.New("--votes is missing: give each site a number of votes, such as --votes=2,1,1")
	case c.Kind != "weighted" && c.N == 0:
		return fmt.Errorf("--n is missing: choose 1 to %d sites", maxBuilt)
	case c.N < 0 || c.N > maxBuilt:
		return fmt.Errorf("--n=%d: choose 1 to %d sites", c.N, maxBuilt)
	}
	var err error
	c.coterie, err = c.build(sitesTo(c.N))
	return err
}

func (c *buildCmd) Run(con *tool.Console) error {
	if c.Assign {
		return c.assign(con)
	}
	if n := c.coterie.Len(); n > maxPrinted {
		return fmt.Errorf("%s quorums are too many to print; --assign prints one quorum for each site", count(n))
	}
	if c.JSON {
		return json.NewEncoder(con.Out).Encode(slices.Collect(c.coterie.Quorums()))
	}
	var b strings.Builder
	for q := range c.coterie.Quorums() {
		writeQuorum(&b, q)
	}
	fmt.Fprint(con, b.String())
	return nil
}

func (c *buildCmd) assign(out io.Writer) error {
	a, err := c.coterie.Assign(sitesTo(c.N)...)
	if err != nil {
		return err
	}
	if c.JSON {
		return json.NewEncoder(out).Encode(maps.Collect(a.All()))
	}
	for site, q := range a.All() {
		fmt.Fprintf(out, "%d: ", site)
		writeQuorum(out, q)
	}
	fmt.Fprintf(out, "\n%v", a.Report())
	return nil
}

func writeQuorum[T any](out io.Writer, q []T) {
	list := fmt.Sprint(q)
	fmt.Fprintln(out, list[1:len(list)-1]) // without the brackets
}

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
