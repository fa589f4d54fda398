// Package sim measures algorithms in virtual time.
package sim

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/trace"
)

// Cmd is dmutex sim.
type Cmd struct {
	Algorithm catalog.Choice `default:"${several}" help:"One algorithm, or all of them: ${algorithms}."`
	Nodes     sizes          `default:"2,5,9,16,25,49" help:"Sizes of the groups, 1 to 1000: numbers and ranges, such as \"2..10,25,100\"."`
	Load      []load         `default:"rare,saturated" help:"rare (one request at a time), saturated (all nodes always request), or the mean time in T from a node's release to its next request."`
	Requests  int            `default:"0" help:"Requests in a run, of all nodes together, at least 1. The default is 50 a node and at least 1000."`
	Hold      float64        `default:"1" least:"0" most:"1e6" help:"Time in T that the lock is held, 0 to 1e6."`
	Shares    float64        `default:"0" least:"0" most:"1" help:"Fraction of the requests that are to share the lock, 0 to 1. Of all algorithms those that share run then."`
	Delay     string         `default:"constant" enum:"constant,uniform,exponential" help:"Distribution of the times of messages: constant, uniform or exponential; the mean is T."`
	Seed      uint64         `default:"1" help:"The same seed makes the same runs."`
	Trace     string         `placeholder:"DIR" help:"Record the trace of every node into a new directory in DIR for each run, of groups of up to 64 nodes; T is written as a second. See trace draw."`
	JSON      bool           `name:"json" xor:"format" help:"Print the result as JSON, and nothing else, on standard output."`
	CSV       bool           `name:"csv" xor:"format" help:"Print the result as CSV, and nothing else, on standard output."`

	runs  []run
	delay dmutextest.Delay
}

// A run is one measurement to be made.
type run struct {
	algorithm catalog.Algorithm
	nodes     int
	load      load
}

func (r run) String() string {
	return fmt.Sprintf("%s, %d nodes, load %s", r.algorithm.Name, r.nodes, r.load.name)
}

// Help is the text of sim --help.
func (Cmd) Help() string {
	return `The real machines run in virtual time, in which a message takes T and computing takes no time. For each algorithm, ` +
		`size of the group and load the table shows: the messages of an entry beside the paper's formula; the time from a request to the entry; ` +
		`the time from a release to the next entry, if a node was waiting; the entries per T; and how evenly the entries fell to the ` +
		`nodes (Jain's index: 1 is perfectly even). Everything counts from the beginning, when in a saturated group all request at once. ` +
		`For central, the coordinator's own entries, which cost nothing, do not count in the messages of an entry. ` +
		`With --shares, nodes that share the lock are in it together. ` +
		`Each run also checks that no two nodes are in the critical section, unless both share the lock, that fences rise and that all are served.

Exit status: 0 if all messages were within the formula; 1 if not, or if something was wrong; 2 if the command line is wrong; ` +
		`3 if the command could not be completed.`
}

// Validate refuses what could not be run.
func (c *Cmd) Validate() error {
	switch {
	case len(c.Load) == 0:
		return errors.New("--load is empty: choose rare, saturated or a time")
	case c.Requests < 0 || c.Requests > 10_000_000:
		return fmt.Errorf("--requests=%d: choose 1 to 10000000", c.Requests)
	case c.Shares > 0 && !slices.ContainsFunc(c.Algorithm, catalog.Algorithm.Shares):
		return errors.New("--shares: " + c.Algorithm[0].Alone())
	case c.Trace != "" && slices.Max(c.Nodes) > mostTraced:
		return fmt.Errorf("--trace=%s: choose --nodes up to %d", c.Trace, mostTraced)
	}
	c.delay = map[string]dmutextest.Delay{"uniform": dmutextest.Uniform, "exponential": dmutextest.Exponential}[c.Delay] // else constant
	c.runs = nil
	for _, load := range c.Load {
		for _, a := range c.Algorithm {
			if c.Shares > 0 && !a.Shares() {
				continue
			}
			if c.Shares > 0 {
				a = a.Shared()
			}
			for _, n := range c.Nodes {
				c.runs = append(c.runs, run{a, n, load})
			}
		}
	}
	return nil
}

const (
	mostNodes  = 1000
	mostTraced = 64
)

// sizes are numbers and ranges, such as "2..10,25".
type sizes []int

// UnmarshalText reads them.
func (s *sizes) UnmarshalText(text []byte) error {
	*s = nil
	for part := range strings.SplitSeq(string(text), ",") {
		low, high, isRange := strings.Cut(part, "..")
		if !isRange {
			high = low
		}
		from, err1 := strconv.Atoi(strings.TrimSpace(low))
		to, err2 := strconv.Atoi(strings.TrimSpace(high))
		if err := errors.Join(err1, err2); err != nil || from < 1 || from > to || to > mostNodes {
			return fmt.Errorf("choose numbers or ranges from 1 to %d, such as 2..10,25", mostNodes)
		}
		for n := from; n <= to; n++ {
			*s = append(*s, n)
		}
	}
	slices.Sort(*s)
	*s = slices.Compact(*s)
	return nil
}

// A load is the mean time to think.
type load struct {
	name  string
	think float64
}

// UnmarshalText reads a name or a time.
func (l *load) UnmarshalText(text []byte) (err error) {
	switch l.name = string(text); l.name {
	case "rare":
		l.think = math.Inf(1)
	case "saturated":
		l.think = 0
	default:
		if l.think, err = strconv.ParseFloat(l.name, 64); err != nil || !(l.think > 0 && l.think <= 1e6) {
			return errors.New("choose rare, saturated or a time in T of at most 1e6")
		}
	}
	return nil
}

// A measurement is the result of one run. Times are in T.
type measurement struct {
	Algorithm  string            `json:"algorithm"`
	Load       string            `json:"load"`
	Nodes      int               `json:"nodes"`
	Shares     float64           `json:"shares,omitempty"`
	Entries    int               `json:"entries"`
	Messages   catalog.Messages  `json:"messages"`
	Fits       bool              `json:"fits_formula"`
	Wait       dmutextest.Spread `json:"request_to_entry_T"`
	Next       dmutextest.Spread `json:"release_to_next_entry_T"` // if the node was waiting already
	Throughput float64           `json:"entries_per_T"`
	Fairness   float64           `json:"jain_fairness"`
}

// Run measures everything, and reports.
func (c *Cmd) Run(con *tool.Console) error {
	for _, r := range c.runs {
		if c.Trace != "" {
			if _, err := tool.TraceDir(c.traceDir(r)); err != nil {
				return err
			}
		}
	}
	var all []measurement
	p := tool.NewProgress(con.Err, 1, "")
	for _, r := range c.runs {
		p.Live("%v", r)
		m, err := c.measure(con, r, p)
		if err != nil {
			p.Clear()
			return err
		}
		all = append(all, m)
	}
	p.Clear()
	switch {
	case c.JSON:
		_ = tool.PrintJSON(con, all)
	case c.CSV:
		writeCSV(con, all)
	default:
		writeTable(con, all)
	}
	if slices.ContainsFunc(all, func(m measurement) bool { return !m.Fits }) {
		return tool.ErrFailed
	}
	return nil
}

// traceDir is where the traces of a run go. Its name is valid on every system.
func (c *Cmd) traceDir(r run) string {
	name := fmt.Sprintf("%s-%d-%s", r.algorithm.Name, r.nodes, r.load.name)
	return filepath.Join(c.Trace, strings.NewReplacer("/", "_", `\`, "_", ":", "_", " ", "_").Replace(name))
}

// measure makes one run, and says what was wrong in it.
func (c *Cmd) measure(con *tool.Console, r run, p *tool.Progress) (m measurement, err error) {
	config := dmutextest.SimConfig{
		Algorithm: r.algorithm.New,
		Members:   dmutextest.Nodes(r.nodes),
		Delay:     c.delay,
		Think:     r.load.think,
		Hold:      c.Hold,
		Shares:    c.Shares,
		Entries:   c.Requests,
		Seed:      c.Seed,
	}
	if c.Requests == 0 {
		config.Entries = max(50*r.nodes, 1000)
	}
	if c.Trace != "" {
		traces := make(traces)
		defer func() { err = cmp.Or(err, traces.close()) }()
		if err := traces.open(c.traceDir(r), r.algorithm, config.Members); err != nil {
			return m, err
		}
		config.Trace = traces.write
	}
	got, err := dmutextest.Simulate(config)
	if err != nil {
		p.Say("%s: %v: %v", con.Program(), r, err)
		return m, tool.ErrFailed
	}
	entries := got.Entries
	if r.algorithm.OwnFree {
		entries -= got.ByNode[0] // of node 1, the home
	}
	counted := r.algorithm.Count(r.nodes, uint64(got.Messages), entries)
	return measurement{
		Algorithm: r.algorithm.Name, Load: r.load.name, Nodes: r.nodes, Shares: c.Shares, Entries: got.Entries, Messages: counted, Fits: counted.Fit(),
		Wait: got.Wait, Next: got.Next, Throughput: got.Throughput, Fairness: got.Fairness,
	}, nil
}

func writeCSV(w io.Writer, all []measurement) {
	out := csv.NewWriter(w)
	out.Write([]string{
		"algorithm", "load", "nodes", "entries", "counted_entries", "messages", "messages_per_entry", "formula", "formula_least", "formula_greatest", "fits_formula",
		"request_to_entry_T", "request_to_entry_least_T", "request_to_entry_greatest_T",
		"release_to_next_entry_T", "release_to_next_entry_least_T", "release_to_next_entry_greatest_T",
		"entries_per_T", "jain_fairness",
	})
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	spread := func(s dmutextest.Spread) []string {
		if s.Count == 0 {
			return []string{"", "", ""}
		}
		return []string{number(s.Mean), number(s.Least), number(s.Greatest)}
	}
	for _, m := range all {
		c := m.Messages
		out.Write(slices.Concat([]string{
			m.Algorithm, m.Load, fmt.Sprint(m.Nodes), fmt.Sprint(m.Entries), fmt.Sprint(c.Entries), fmt.Sprint(c.Sent), number(c.PerEntry),
			c.Formula, fmt.Sprint(c.Least), fmt.Sprint(c.Greatest), fmt.Sprint(m.Fits),
		}, spread(m.Wait), spread(m.Next), []string{number(m.Throughput), number(m.Fairness)}))
	}
	out.Flush()
}

var headings = []tool.Heading{
	{Columns: []string{"algorithm"}},
	{Columns: []string{"nodes"}},
	{Title: "messages/entry", Columns: []string{"measured", "formula"}},
	{Title: "request to entry", Columns: []string{"mean", "greatest"}},
	{Title: "release to next", Columns: []string{"mean", "greatest"}},
	{Columns: []string{"entries/T"}},
	{Columns: []string{"fairness"}},
}

func writeTable(w io.Writer, all []measurement) {
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(m measurement) bool { return m.Load != all[0].Load })
		if end < 0 {
			end = len(all)
		}
		words := map[string]string{"rare": "one request at a time", "saturated": "all nodes always request"}[all[0].Load]
		words = cmp.Or(words, "each node thinks for "+all[0].Load+" T on average")
		if all[0].Shares > 0 {
			words += fmt.Sprintf(", %g %% of the requests share the lock", 100*all[0].Shares)
		}
		fmt.Fprintf(w, "\nLoad %s: %s. Times are in T, the time of a message.\n\n", all[0].Load, words)
		var rows [][]string
		for _, m := range all[:end] {
			rows = append(rows, m.cells())
		}
		tool.Tabulate(w, headings, rows)
		if slices.ContainsFunc(all[:end], func(m measurement) bool { return m.Messages.Entries != m.Entries }) {
			fmt.Fprintln(w, "\ncentral: the coordinator's own entries, which cost nothing, do not count.")
		}
		all = all[end:]
	}
}

func (m measurement) cells() []string {
	formula, mean, greatest := m.Messages.Span(), "-", "-"
	if !m.Fits {
		formula = "NOT " + formula
	}
	if m.Next.Count > 0 {
		mean, greatest = decimals(m.Next.Mean), decimals(m.Next.Greatest)
	}
	return []string{
		m.Algorithm, fmt.Sprint(m.Nodes), m.Messages.Measured(), formula, decimals(m.Wait.Mean), decimals(m.Wait.Greatest),
		mean, greatest, decimals(m.Throughput), decimals(m.Fairness),
	}
}

func decimals(v float64) string { return fmt.Sprintf("%.3f", v) }

// traces are the traces of a simulation, as they are written.
type traces map[dmutex.NodeID]*nodeTrace

type nodeTrace struct {
	file *os.File
	*trace.Recorder
	events int // that were recorded
}

// together is how many events are written at a time, so that the recorder loses none.
const together = 64

// open begins the traces of the members. They must be closed, also if it fails.
func (s traces) open(dir string, a catalog.Algorithm, members []dmutex.NodeID) error {
	if _, err := tool.TraceDir(dir); err != nil {
		return err
	}
	for _, id := range members {
		text, err := trace.Describe(a.New, id, members)
		if err != nil {
			return err
		}
		file, err := tool.CreateTrace(dir, id)
		if err != nil {
			return err
		}
		s[id] = &nodeTrace{file: file, Recorder: trace.NewRecorder(file)}
		if err := s[id].Open(trace.Header{Self: id, Members: members, Algorithm: text}); err != nil {
			return err
		}
	}
	return nil
}

func (s traces) write(id dmutex.NodeID, e *trace.Event) {
	n := s[id]
	n.Record(e)
	if n.events++; n.events%together == 0 {
		_ = n.Flush(context.Background()) // its error stays until close
	}
}

func (s traces) close() (err error) {
	for _, n := range s {
		err = cmp.Or(err, n.Flush(context.Background()), n.file.Close())
		if lost := n.Lost(); lost > 0 {
			err = cmp.Or(err, fmt.Errorf("%s: %d events are missing", n.file.Name(), lost))
		}
	}
	return err
}
