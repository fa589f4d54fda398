package quorum

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// compareCmd compares constructions.
type compareCmd struct {
	N      int       `name:"n" help:"Number of sites, 1 to 1024."`
	P      []float64 `name:"p" help:"Probability that a site is up, from 0 to 1: one for all sites, or one for each. With it the table is ranked by availability, without it by messages."`
	Format string    `default:"table" enum:"table,csv,json" help:"Output: table, csv or json."`
}

// Help is the text of quorum compare --help.
func (compareCmd) Help() string {
	return `size: the sites of a quorum. load: how often the busiest site must be asked when quorums are chosen in the best way (the optimum of a linear program). ` +
		`survives: how many crashes, of any sites, leave a quorum. available: how likely a quorum is up. ` +
		`messages: per entry of Maekawa's algorithm, without contention; contention at most doubles them.

If an exact answer would take too long, two numbers are bounds, and ± is the half width of a 99 percent confidence interval.`
}

// Validate refuses what cannot be compared.
func (c *compareCmd) Validate() error {
	if c.N == 0 {
		return errors.New("--n is missing: choose 1 to 1024 sites")
	}
	if c.N < 1 || c.N > 1024 {
		return fmt.Errorf("--n=%d: choose 1 to 1024 sites", c.N)
	}
	if len(c.P) > 1 && len(c.P) != c.N {
		return fmt.Errorf("--p has %d probabilities: give one, or one for each of %d sites", len(c.P), c.N)
	}
	for _, p := range c.P {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("--p=%v: choose from 0 to 1", p)
		}
	}
	return nil
}

// Run prints the table.
func (c *compareCmd) Run(con *tool.Console) error {
	rows, err := compare(c.N, c.P)
	if err != nil {
		return err
	}
	write := writeComparison
	switch c.Format {
	case "csv":
		write = writeComparisonCSV
	case "json":
		write = writeComparisonJSON
	}
	return write(con.Out, rows, len(c.P) > 0)
}

func writeComparison(out io.Writer, rows []row, available bool) error {
	columns := []string{"construction", "quorums", "size", "load", "survives"}
	if available {
		columns = append(columns, "available")
	}
	columns = append(columns, "messages")
	var cells [][]string
	for _, r := range rows {
		line := []string{r.name, count(r.coterie.Len()), span(r.size[0], r.size[1]), bounds(r.load[0], r.load[1]), span(r.resilience[0], r.resilience[1])}
		if available {
			line = append(line, estimate(r.available))
		}
		cells = append(cells, append(line, fmt.Sprintf("%.1f", r.messages)))
	}
	var b strings.Builder
	tool.Columns(&b, columns, cells)
	_, err := io.WriteString(out, b.String())
	return err
}

// count writes a number of quorums: in full, or roughly, or as a lower bound.
func count(n int) string {
	switch {
	case n < 1_000_000:
		return strconv.Itoa(n)
	case n == maxInt:
		return fmt.Sprintf(">%.0e", float64(n))
	}
	return fmt.Sprintf("%.1e", float64(n))
}

const maxInt = int(^uint(0) >> 1)

// A measured is a row for machines.
type measured struct {
	Construction string     `json:"construction"`
	Quorums      int        `json:"quorums"` // at most the largest int
	Size         [2]int     `json:"size"`
	Load         [2]float64 `json:"load"`
	Resilience   [2]int     `json:"resilience"`
	Availability *estimated `json:"availability,omitempty"`
	Messages     float64    `json:"messages"`
}

type estimated struct {
	Value   float64 `json:"value"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Samples int     `json:"samples"`
}

func writeComparisonJSON(out io.Writer, rows []row, available bool) error {
	list := []measured{}
	for _, r := range rows {
		m := measured{r.name, r.coterie.Len(), r.size, r.load, r.resilience, nil, r.messages}
		if a := r.available; available {
			m.Availability = &estimated{a.Value, a.Low, a.High, a.Samples}
		}
		list = append(list, m)
	}
	return tool.PrintJSON(out, list)
}

func writeComparisonCSV(out io.Writer, rows []row, available bool) error {
	head := []string{"construction", "quorums", "smallest", "largest", "load_low", "load_high", "resilience_low", "resilience_high"}
	if available {
		head = append(head, "availability", "availability_low", "availability_high", "samples")
	}
	lines := [][]string{append(head, "messages")}
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	for _, r := range rows {
		line := []string{r.name, strconv.Itoa(r.coterie.Len()), strconv.Itoa(r.size[0]), strconv.Itoa(r.size[1]),
			number(r.load[0]), number(r.load[1]), strconv.Itoa(r.resilience[0]), strconv.Itoa(r.resilience[1])}
		if a := r.available; available {
			line = append(line, number(a.Value), number(a.Low), number(a.High), strconv.Itoa(a.Samples))
		}
		lines = append(lines, append(line, number(r.messages)))
	}
	return csv.NewWriter(out).WriteAll(lines)
}
