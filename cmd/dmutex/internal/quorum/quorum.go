// Package quorum builds, checks and compares coteries.
package quorum

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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
