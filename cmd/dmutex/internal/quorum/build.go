package quorum

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/quorum"
)

// buildCmd prints a construction.
type buildCmd struct {
	Kind      string `required:"" help:"Construction: ${constructions} or weighted."`
	N         int    `name:"n" help:"Number of sites, which are called 1, 2, ..., n. Not for weighted, whose votes determine it, and not needed with --widths."`
	Columns   int    `help:"Columns of a grid or rowgrid; the default is about sqrt(n)."`
	Degree    int    `help:"Children of a site in a tree (default 2), or groups of a group in hqc (default 3)."`
	Widths    []int  `help:"Widths of the rows of a wall, the top row first; the default is 1,2,3,..."`
	Votes     []int  `help:"Votes of the sites, for weighted."`
	Threshold int    `help:"Votes that a quorum must have, for weighted; the default is more than half."`
	Assign    bool   `help:"Instead, print a quorum for each site, and which of Maekawa's conditions hold."`
	JSON      bool   `name:"json" help:"Print JSON: a list of quorums, or with --assign an object with a quorum for each site."`

	coterie quorum.Coterie[int]
}

// A kind is a construction and the options that apply to it.
type kind struct {
	name    string
	options string
	build   func(c *buildCmd, sites []int) (quorum.Coterie[int], error)
}

// kinds are the constructions of the library in their usual shapes, with options
// for those whose shape can be chosen, and weighted votes.
func kinds() []kind {
	var list []kind
	for _, k := range quorum.Constructions[int]() {
		usual := func(_ *buildCmd, sites []int) (quorum.Coterie[int], error) { return k.Build(sites...) }
		list = append(list, kind{k.Name, "n", usual})
	}
	shape := func(name, options string, chosen func(c *buildCmd) bool, build func(c *buildCmd, sites []int) (quorum.Coterie[int], error)) {
		i := slices.IndexFunc(list, func(k kind) bool { return k.name == name })
		usual := list[i].build
		list[i] = kind{name, options, func(c *buildCmd, sites []int) (quorum.Coterie[int], error) {
			if chosen(c) {
				return build(c, sites)
			}
			return usual(c, sites)
		}}
	}
	columns := func(c *buildCmd) bool { return c.Columns != 0 }
	degree := func(c *buildCmd) bool { return c.Degree != 0 }
	widths := func(c *buildCmd) bool { return c.Widths != nil }
	shape("grid", "n columns", columns, func(c *buildCmd, s []int) (quorum.Coterie[int], error) { return quorum.Grid(c.Columns, s...) })
	shape("rowgrid", "n columns", columns, func(c *buildCmd, s []int) (quorum.Coterie[int], error) { return quorum.RowGrid(c.Columns, s...) })
	shape("tree", "n degree", degree, func(c *buildCmd, s []int) (quorum.Coterie[int], error) { return quorum.Tree(c.Degree, s...) })
	shape("hqc", "n degree", degree, func(c *buildCmd, s []int) (quorum.Coterie[int], error) {
		return quorum.Hierarchical(c.Degree, s...)
	})
	shape("wall", "n widths", widths, func(c *buildCmd, s []int) (quorum.Coterie[int], error) { return quorum.Wall(c.Widths, s...) })
	return append(list, kind{"weighted", "votes threshold", func(c *buildCmd, _ []int) (quorum.Coterie[int], error) { return c.weighted() }})
}

func (c *buildCmd) weighted() (quorum.Coterie[int], error) {
	var votes []quorum.Vote[int]
	total := 0
	for i, v := range c.Votes {
		votes = append(votes, quorum.Vote[int]{Site: i + 1, Votes: v})
		total += v
	}
	threshold := c.Threshold
	if threshold == 0 {
		threshold = total/2 + 1
	}
	return quorum.Weighted(threshold, votes...)
}

// maxBuilt bounds the sites of build.
const maxBuilt = 4096

// Validate builds the coterie: one that cannot be built is a mistake in the
// command line.
func (c *buildCmd) Validate() error {
	if c.Kind == "" {
		return fmt.Errorf("--kind is missing: choose one of %s", tool.ConstructionNames()+", weighted")
	}
	all := kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == c.Kind })
	if i < 0 {
		return fmt.Errorf("--kind=%s: choose one of %s", c.Kind, tool.ConstructionNames()+", weighted")
	}
	for _, o := range []struct {
		name  string
		given bool
	}{
		{"n", c.N != 0}, {"columns", c.Columns != 0}, {"degree", c.Degree != 0}, {"widths", c.Widths != nil},
		{"votes", c.Votes != nil}, {"threshold", c.Threshold != 0},
	} {
		if o.given && !slices.Contains(strings.Fields(all[i].options), o.name) {
			return fmt.Errorf("--%s is not for --kind=%s", o.name, c.Kind)
		}
	}
	if c.N == 0 {
		for _, w := range c.Widths {
			c.N += max(0, min(w, maxBuilt)) // a wall refuses others
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
	sites := make([]int, c.N)
	for i := range sites {
		sites[i] = i + 1
	}
	var err error
	c.coterie, err = all[i].build(c, sites)
	if err != nil {
		return errors.New(strings.Replace(err.Error(), "use Degenerate", "--kind degenerate", 1)) // the library speaks to programs
	}
	return nil
}

// Run prints the quorums, one a line.
func (c *buildCmd) Run(con *tool.Console) error {
	if c.Assign {
		return c.assign(con.Out)
	}
	quorums, err := c.coterie.Slices()
	if err != nil {
		return fmt.Errorf("%w; --assign prints one quorum for each site", err)
	}
	if c.JSON {
		return json.NewEncoder(con.Out).Encode(quorums)
	}
	var b strings.Builder
	for _, q := range quorums {
		writeQuorum(&b, q)
	}
	_, err = io.WriteString(con.Out, b.String())
	return err
}

func (c *buildCmd) assign(out io.Writer) error {
	sites := make([]int, c.N)
	for i := range sites {
		sites[i] = i + 1
	}
	a, err := c.coterie.Assign(sites...)
	if err != nil {
		return err
	}
	if c.JSON {
		object := map[int][]int{}
		for site, q := range a.All() {
			object[site] = q
		}
		return json.NewEncoder(out).Encode(object)
	}
	var b strings.Builder
	for site, q := range a.All() {
		fmt.Fprintf(&b, "%d: ", site)
		writeQuorum(&b, q)
	}
	fmt.Fprintf(&b, "\n%v", a.Report())
	_, err = io.WriteString(out, b.String())
	return err
}

func writeQuorum[T any](b *strings.Builder, q []T) {
	for i, site := range q {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprint(b, site)
	}
	b.WriteByte('\n')
}
