package main

import (
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/dmutex/dmutex/dmutextest"
)

// simCmd measures algorithms in virtual time.
type simCmd struct {
	Algorithm string   `default:"all" help:"One algorithm, or all of them: ${algorithms}."`
	Nodes     string   `default:"2,5,9,16,25,49" help:"Sizes of the groups, 1 to 1000: numbers and ranges, such as \"2..10,25,100\"."`
	Load      []string `default:"rare,saturated" help:"rare (one request at a time), saturated (everybody always requests), or the mean time in T from a node's release to its next request."`
	Requests  int      `default:"0" help:"Requests in a run, of all nodes together, at least 1. If not given, 50 a node and at least 1000."`
	Hold      float64  `default:"1" help:"Time in T that the lock is held, 0 to 1e6."`
	Delay     string   `default:"constant" enum:"constant,uniform,exponential" help:"How the times of messages are distributed: constant, uniform or exponential; the mean is T."`
	Seed      uint64   `default:"1" help:"The same seed makes the same runs."`
	Trace     string   `placeholder:"DIR" help:"Record every node's trace into a new directory in DIR for each run, of groups of up to 64 nodes; T is written as a second. See trace draw."`
	JSON      bool     `name:"json" xor:"format" help:"Print the result as JSON, and nothing else, on standard output."`
	CSV       bool     `name:"csv" xor:"format" help:"Print the result as CSV, and nothing else, on standard output."`
	Plot      string   `placeholder:"FILE" help:"Draw messages and delays against the number of nodes into this file, .svg or .png."`

	sizes  []int
	thinks []float64
}

// Help is the text of sim --help.
func (simCmd) Help() string {
	return `The real machines run in virtual time, in which a message takes T and computing nothing. Shown are, for each algorithm, ` +
		`size of the group and load: the messages of an entry beside the paper's formula; the time from a request to the entry; ` +
		`the time from a release to the next entry, if somebody was waiting; the entries per T; and how evenly they fell to the ` +
		`nodes (Jain's index: 1 is perfectly even). All counts from the beginning, when in a saturated group all request at once. ` +
		`Of central, the coordinator's own entries, which cost nothing, are not counted in the messages of an entry. ` +
		`Meanwhile it is checked that no two nodes are in the critical section, that fences rise and that all are served.

Exit status: 0 if all messages were within the formula; 1 if not, or if something was wrong; 2 if the command line is wrong; ` +
		`3 if the command could not be completed, or was stopped by Ctrl-C.`
}

// Validate refuses what could not be run.
func (c *simCmd) Validate() (err error) {
	if c.sizes, err = parseSizes(c.Nodes); err != nil {
		return fmt.Errorf("--nodes=%s: %w", c.Nodes, err)
	}
	c.thinks = c.thinks[:0]
	for _, load := range c.Load {
		think, err := parseLoad(load)
		if err != nil {
			return fmt.Errorf("--load=%s: %w", load, err)
		}
		c.thinks = append(c.thinks, think)
	}
	switch suffix := filepath.Ext(c.Plot); {
	case !isAlgorithm(c.Algorithm):
		return fmt.Errorf("--algorithm=%s: choose all or one of %s", c.Algorithm, algorithmNames())
	case len(c.Load) == 0:
		return errors.New("--load is empty: choose rare, saturated or a time")
	case c.Requests < 0 || c.Requests > 10_000_000:
		return fmt.Errorf("--requests=%d: choose 1 to 10000000", c.Requests)
	case !(c.Hold >= 0 && c.Hold <= 1e6):
		return fmt.Errorf("--hold=%v: choose 0 to 1e6", c.Hold)
	case c.Trace != "" && c.sizes[len(c.sizes)-1] > mostTraced:
		return fmt.Errorf("--trace=%s: choose --nodes up to %d", c.Trace, mostTraced)
	case c.Plot != "" && suffix != ".svg" && suffix != ".png":
		return fmt.Errorf("--plot=%s: the name must end in .svg or .png", c.Plot)
	}
	return nil
}

const (
	mostNodes  = 1000
	mostTraced = 64
)

// parseSizes reads numbers and ranges, such as "2..10,25".
func parseSizes(s string) (sizes []int, err error) {
	for _, part := range strings.Split(s, ",") {
		low, high, isRange := strings.Cut(part, "..")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(strings.TrimSpace(low))
		to, err2 := strconv.Atoi(strings.TrimSpace(high))
		if err := errors.Join(err1, err2); err != nil || from < 1 || from > to || to > mostNodes {
			return nil, fmt.Errorf("choose numbers or ranges from 1 to %d, such as 2..10,25", mostNodes)
		}
		for n := from; n <= to; n++ {
			sizes = append(sizes, n)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

// parseLoad returns the mean time to think.
func parseLoad(s string) (float64, error) {
	switch s {
	case "rare":
		return dmutextest.Rare, nil
	case "saturated":
		return dmutextest.Saturated, nil
	}
	think, err := strconv.ParseFloat(s, 64)
	if err != nil || !(think > 0 && think <= 1e6) {
		return 0, errors.New("choose rare, saturated or a time in T of at most 1e6")
	}
	return think, nil
}

// A measurement is one run.
type measurement struct {
	Algorithm  string  `json:"algorithm"`
	Load       string  `json:"load"`
	Nodes      int     `json:"nodes"`
	Entries    int     `json:"entries"`
	Counted    int     `json:"counted_entries"` // those that the formula is about
	Messages   int     `json:"messages"`
	PerEntry   float64 `json:"messages_per_entry"` // messages / counted entries
	Formula    string  `json:"formula"`
	Least      int     `json:"formula_least"`
	Greatest   int     `json:"formula_greatest"`
	Fits       bool    `json:"fits_formula"`
	Wait       spread  `json:"request_to_entry_T"`
	Next       *spread `json:"release_to_next_entry_T,omitempty"` // if anybody ever waited
	Throughput float64 `json:"entries_per_T"`
	Fairness   float64 `json:"jain_fairness"`

	counted messages
}

// A spread is of times in T.
type spread struct {
	Mean     float64 `json:"mean"`
	Least    float64 `json:"least"`
	Greatest float64 `json:"greatest"`
}

// Run measures everything, and reports.
func (c *simCmd) Run(con *console) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := c.traceDirs(); err != nil {
		return err
	}
	var all []measurement
	p := newProgress(con.err, 1)
	for k := range c.thinks {
		for _, a := range chosen(c.Algorithm) {
			for _, n := range c.sizes {
				p.live(fmt.Sprintf("%s, %d nodes, load %s", a.name, n, c.Load[k]))
				m, err := c.measureUntil(ctx, a, n, k)
				if errors.Is(err, context.Canceled) {
					p.clear()
					return fmt.Errorf("interrupted: stopped after %s", several(len(all), "run"))
				}
				if errors.Is(err, errTraces) {
					p.clear()
					return err
				}
				if err != nil {
					p.clear()
					fmt.Fprintf(con.err, "dmutex: %s, %d nodes, load %s: %v\n", a.name, n, c.Load[k], err)
					return errFailed
				}
				m.Load = c.Load[k]
				all = append(all, m)
			}
		}
	}
	p.clear()
	write := writeSimTable
	switch {
	case c.JSON:
		write = writeSimJSON
	case c.CSV:
		write = writeSimCSV
	}
	if err := write(con.out, all); err != nil {
		return err
	}
	if c.Plot != "" {
		if err := plotAll(c.Plot, c.Load, all); err != nil {
			return err
		}
		fmt.Fprintf(con.err, "plot in %s\n", c.Plot)
		if c.sizes[0] == 1 {
			fmt.Fprintln(con.err, "a group of 1 sends no messages, and there is no 0 on the plot's axes: it is left out")
		}
	}
	if slices.ContainsFunc(all, func(m measurement) bool { return !m.Fits }) {
		return errFailed
	}
	return nil
}

// traceDir is where the traces of a run go.
func (c *simCmd) traceDir(a algorithm, n, load int) string {
	return filepath.Join(c.Trace, fileName(a.name, strconv.Itoa(n), c.Load[load]))
}

// traceDirs makes the directories of all runs, if there are to be any.
func (c *simCmd) traceDirs() error {
	for k := range c.thinks {
		for _, a := range chosen(c.Algorithm) {
			for _, n := range c.sizes {
				if c.Trace == "" {
					continue
				}
				if _, err := traceDir(c.traceDir(a, n, k)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measureUntil is measure, left alone with its run when ctx ends: then the
// program does too.
func (c *simCmd) measureUntil(ctx context.Context, a algorithm, n, load int) (m measurement, err error) {
	if ctx.Err() != nil {
		return m, ctx.Err()
	}
	type result struct {
		m   measurement
		err error
	}
	done := make(chan result, 1)
	go func() {
		m, err := c.measure(a, n, load)
		done <- result{m, err}
	}()
	select {
	case r := <-done:
		return r.m, r.err
	case <-ctx.Done():
		return m, ctx.Err()
	}
}

// measure makes one run, under the load of that place. An error is what went
// wrong in it.
func (c *simCmd) measure(a algorithm, n, load int) (m measurement, err error) {
	delays := []dmutextest.Delay{dmutextest.Constant, dmutextest.Uniform, dmutextest.Exponential}
	config := dmutextest.SimConfig{
		Algorithm: a.make,
		Members:   dmutextest.Nodes(n),
		Delay:     delays[slices.IndexFunc(delays, func(d dmutextest.Delay) bool { return d.String() == c.Delay })],
		Think:     c.thinks[load],
		Hold:      c.Hold,
		Entries:   c.Requests,
		Seed:      c.Seed,
	}
	if c.Requests == 0 {
		config.Entries = max(50*n, 1000)
	}
	if c.Trace != "" {
		var traces *simTraces
		if traces, err = newSimTraces(c.traceDir(a, n, load), a, config.Members); err != nil {
			return m, fmt.Errorf("%w: %w", errTraces, err)
		}
		defer func() {
			if failed := traces.close(); err == nil && failed != nil {
				err = fmt.Errorf("%w: %w", errTraces, failed)
			}
		}()
		config.Trace = traces.write
	}
	r, err := dmutextest.Simulate(config)
	if err != nil {
		return measurement{}, err
	}
	counted := messages{Sent: uint64(r.Messages), Entries: r.Entries, Formula: a.formula}
	if a.free != 0 {
		counted.Entries -= r.ByNode[a.free-1]
	}
	counted.PerEntry = float64(counted.Sent) / float64(max(1, counted.Entries))
	counted.Least, counted.Greatest = a.messages(n)
	m = measurement{
		Algorithm: a.name, Nodes: n, Entries: r.Entries, Counted: counted.Entries, Messages: r.Messages,
		PerEntry: counted.PerEntry, Formula: a.formula, Least: counted.Least, Greatest: counted.Greatest, Fits: counted.fits(),
		Wait:       spread{r.Wait.Mean, r.Wait.Least, r.Wait.Greatest},
		Throughput: r.Throughput, Fairness: r.Fairness,
		counted: counted,
	}
	if r.Next.Count > 0 {
		m.Next = &spread{r.Next.Mean, r.Next.Least, r.Next.Greatest}
	}
	return m, nil
}

func writeSimJSON(w io.Writer, all []measurement) error { return printJSON(w, all) }

func writeSimCSV(w io.Writer, all []measurement) error {
	out := csv.NewWriter(w)
	out.Write([]string{
		"algorithm", "load", "nodes", "entries", "counted_entries", "messages", "messages_per_entry", "formula", "formula_least", "formula_greatest", "fits_formula",
		"request_to_entry_T", "request_to_entry_least_T", "request_to_entry_greatest_T",
		"release_to_next_entry_T", "release_to_next_entry_least_T", "release_to_next_entry_greatest_T",
		"entries_per_T", "jain_fairness",
	})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for _, m := range all {
		next := []string{"", "", ""}
		if m.Next != nil {
			next = []string{number(m.Next.Mean), number(m.Next.Least), number(m.Next.Greatest)}
		}
		out.Write(slices.Concat([]string{
			m.Algorithm, m.Load, fmt.Sprint(m.Nodes), fmt.Sprint(m.Entries), fmt.Sprint(m.Counted), fmt.Sprint(m.Messages), number(m.PerEntry),
			m.Formula, fmt.Sprint(m.Least), fmt.Sprint(m.Greatest), fmt.Sprint(m.Fits),
			number(m.Wait.Mean), number(m.Wait.Least), number(m.Wait.Greatest),
		}, next, []string{number(m.Throughput), number(m.Fairness)}))
	}
	out.Flush()
	return out.Error()
}

// simHeadings of the table.
var simHeadings = []heading{
	{"", []string{"algorithm"}},
	{"", []string{"nodes"}},
	{"messages/entry", []string{"measured", "formula"}},
	{"request to entry", []string{"mean", "greatest"}},
	{"release to next", []string{"mean", "greatest"}},
	{"", []string{"entries/T"}},
	{"", []string{"fairness"}},
}

const uncounted = "central: the coordinator's own entries, which cost nothing, are not counted."

// writeSimTable writes a table for each load.
func writeSimTable(w io.Writer, all []measurement) error {
	var b strings.Builder
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(m measurement) bool { return m.Load != all[0].Load })
		if end < 0 {
			end = len(all)
		}
		fmt.Fprintf(&b, "\nLoad %s: %s. Times are in T, the time of a message.\n\n", all[0].Load, loadWords(all[0].Load))
		var rows [][]string
		for _, m := range all[:end] {
			rows = append(rows, m.cells())
		}
		tabulate(&b, simHeadings, rows)
		if slices.ContainsFunc(all[:end], func(m measurement) bool { return m.Counted != m.Entries }) {
			b.WriteString("\n" + uncounted + "\n")
		}
		all = all[end:]
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m measurement) cells() []string {
	formula := m.counted.span()
	if !m.Fits {
		formula = "NOT " + formula
	}
	cells := []string{m.Algorithm, fmt.Sprint(m.Nodes), m.counted.perEntry(), formula, decimals(m.Wait.Mean), decimals(m.Wait.Greatest)}
	if m.Next != nil {
		cells = append(cells, decimals(m.Next.Mean), decimals(m.Next.Greatest))
	} else {
		cells = append(cells, "-", "-")
	}
	return append(cells, decimals(m.Throughput), decimals(m.Fairness))
}

func decimals(v float64) string { return fmt.Sprintf("%.3f", v) }

// loadWords says a load in words.
func loadWords(load string) string {
	switch load {
	case "rare":
		return "one request at a time"
	case "saturated":
		return "everybody always requests"
	default:
		return "each node thinks for " + load + " T on average"
	}
}
