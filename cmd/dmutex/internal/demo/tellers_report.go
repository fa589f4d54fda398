package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// A result is that of the tellers' runs.
type result struct {
	Link     string        `json:"link"`
	Nodes    int           `json:"nodes"`
	Deposits int           `json:"deposits_each"`
	Think    time.Duration `json:"think_ns"`
	Lease    time.Duration `json:"lease_ns,omitempty"` // 0 without --crash
	Store    string        `json:"store,omitempty"`    // with --crash
	verdict
	Runs     []outcome     `json:"runs"`
	KillRuns []killOutcome `json:"kill_runs"`
}

func (r *result) judge(err error) bool {
	r.verdict = newVerdict(err)
	failed := slices.ContainsFunc(r.Runs, func(o outcome) bool { return !o.OK }) ||
		slices.ContainsFunc(r.KillRuns, func(o killOutcome) bool { return !o.OK })
	r.OK = r.OK && !failed
	return r.OK
}

// writeText writes the result for people: what was done, the tables, what their
// columns are, and what was seen.
func (r *result) writeText(w io.Writer) error {
	var b strings.Builder
	if len(r.Runs) > 0 {
		r.writeRuns(&b)
	}
	if len(r.KillRuns) > 0 {
		r.writeKillRuns(&b)
	}
	if len(r.Runs) > 0 && r.OK {
		b.WriteString("\nTo see tellers killed for good, and new ones take their place: dmutex demo --crash\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *result) writeRuns(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d tellers, each a process of its own, make %d deposits of %s each into one account, over %s.\n\n",
		r.Nodes, r.Deposits, money(deposit), network(r.Link))
	var rows [][]string
	for _, o := range r.Runs {
		rows = append(rows, o.cells())
	}
	tool.Tabulate(b, slices.Concat(evidenceHeadings, lockHeadings), rows)
	b.WriteString(legend)
	fmt.Fprintf(b, "%-12s  messages/entry, N = %d\n", "algorithm", r.Nodes)
	for _, o := range r.Runs {
		formula := ""
		if o.Messages != nil {
			formula = o.Messages.Formula
		}
		fmt.Fprintf(b, "%-12s  %-14s  %s\n", o.Algorithm, formula, o.About)
	}
	b.WriteString("\n" + r.closing() + "\n")
}

// evidenceHeadings begin each table of tellers. Below them stand the cells of evidence.
var evidenceHeadings = []tool.Heading{
	{Columns: []string{"algorithm"}},
	{Title: "balance", Columns: []string{"expected", "actual"}},
	{Title: "violations", Columns: []string{"overlap", "fence"}},
}

func (o *evidence) cells(algorithm string) []string {
	return []string{algorithm, money(o.Expected), money(o.Actual), fmt.Sprint(o.Overlaps), fmt.Sprint(o.FenceErrors)}
}

var lockHeadings = []tool.Heading{
	{Title: "messages/entry", Columns: []string{"measured", "formula"}},
	{Title: "acquire", Columns: []string{"p50", "p99"}},
	{Title: "hand-off", Columns: []string{"p50", "p99"}},
}

const legend = `
overlap   deposits that found another teller inside the critical section, by a marker file
fence     deposits whose fencing number was not above all earlier ones
hand-off  from a release to the next entry, if that teller was waiting already

`

func (o *outcome) cells() []string {
	cells := o.evidence.cells(o.Algorithm)
	if !o.Locked {
		cells[len(cells)-1] = "-" // there are no fences
		return append(cells, "-", "-", "-", "-", "-", "-")
	}
	cells = append(cells, o.Messages.Measured(), o.Messages.Span())
	return slices.Concat(cells, o.Acquire.cells(), o.HandOff.cells())
}

func (q *quantiles) cells() []string {
	if q == nil {
		return []string{"-", "-"}
	}
	return []string{brief(q.P50), brief(q.P99)}
}

// brief writes a duration with three digits.
func brief(d time.Duration) string {
	unit := time.Microsecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}

func (r *result) closing() string {
	var right []string
	var b strings.Builder
	for _, o := range r.Runs {
		faults := strings.Join(o.Faults, "; ")
		switch {
		case !o.Locked:
			fmt.Fprintf(&b, "With no lock, %s of %s was lost. ", money(o.Expected-o.Actual), money(o.Expected))
		case o.Algorithm == tool.Broken.Name && o.OK:
			b.WriteString("The machine that is wrong on purpose was not caught this time. ")
		case o.Algorithm == tool.Broken.Name:
			fmt.Fprintf(&b, "The machine that is wrong on purpose was caught: %s. ", faults)
		case !o.OK:
			fmt.Fprintf(&b, "FAILED under %s: %s. ", o.Algorithm, faults)
		default:
			right = append(right, o.Algorithm)
		}
	}
	if len(right) > 0 {
		fmt.Fprintf(&b, "Under %s not a cent was lost, no two tellers met inside, every fence rose, and the messages were as many as the formula says.", names(right))
	}
	return tool.Wrap(b.String())
}

func names(algorithms []string) string {
	if len(algorithms) == len(tool.Algorithms) {
		return fmt.Sprintf("all %d algorithms", len(algorithms))
	}
	return strings.Join(algorithms, ", ")
}
