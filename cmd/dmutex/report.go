package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// A result is all that a demo found out.
type result struct {
	Link     string        `json:"link"`
	Nodes    int           `json:"nodes"`
	Deposits int           `json:"deposits_each"`
	Think    time.Duration `json:"think_ns"`
	OK       bool          `json:"ok"` // all runs were completed, and the locked ones were right
	Error    string        `json:"error,omitempty"`
	Runs     []outcome     `json:"runs"`
}

// judge comes to the verdict; err is why not all runs could be completed.
func (r *result) judge(err error) {
	r.OK = err == nil
	if err != nil {
		r.Error = err.Error()
	}
	for _, o := range r.Runs {
		r.OK = r.OK && o.OK
	}
}

func (r *result) writeJSON(w io.Writer) error { return printJSON(w, r) }

// writeTable writes the result for people: what was done, the table, what is in
// it, and what was seen.
func (r *result) writeTable(w io.Writer) error {
	if len(r.Runs) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d tellers, each a process of its own, make %d deposits of %s each into one account, over %s.\n\n",
		r.Nodes, r.Deposits, money(deposit), strings.ToUpper(r.Link))
	rows := make([][]string, 0, len(r.Runs))
	for _, o := range r.Runs {
		rows = append(rows, o.cells())
	}
	tabulate(&b, headings, rows)
	b.WriteString(legend)
	fmt.Fprintf(&b, "%-12s  messages/entry, N = %d\n", "algorithm", r.Nodes)
	for _, o := range r.Runs {
		formula := ""
		if o.Messages != nil {
			formula = o.Messages.Formula
		}
		fmt.Fprintf(&b, "%-12s  %-14s  %s\n", o.Algorithm, formula, o.About)
	}
	b.WriteString("\n" + r.closing() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// headings of the table.
var headings = []heading{
	{"", []string{"algorithm"}},
	{"balance", []string{"expected", "actual"}},
	{"violations", []string{"overlap", "fence"}},
	{"messages/entry", []string{"measured", "formula"}},
	{"acquire", []string{"p50", "p99"}},
	{"hand-off", []string{"p50", "p99"}},
}

const legend = `
overlap   deposits that found another teller inside the critical section, by a marker file
fence     deposits whose fencing number was not above all earlier ones
hand-off  from a release to the next entry, where that teller was waiting already

`

func (o *outcome) cells() []string {
	cells := []string{o.Algorithm, money(o.Expected), money(o.Actual), fmt.Sprint(o.Overlaps)}
	if !o.Locked {
		return append(cells, "-", "-", "-", "-", "-", "-", "-")
	}
	a50, a99 := o.Acquire.cells()
	h50, h99 := o.HandOff.cells()
	return append(cells, fmt.Sprint(o.FenceErrors), o.Messages.perEntry(), o.Messages.span(), a50, a99, h50, h99)
}

// perEntry writes a whole number as such, so that an exact formula is seen to
// be met exactly.
func (m *messages) perEntry() string {
	if m.Entries > 0 && m.Sent%uint64(m.Entries) == 0 {
		return fmt.Sprint(m.Sent / uint64(m.Entries))
	}
	return fmt.Sprintf("%.3f", m.PerEntry)
}

func (q *quantiles) cells() (p50, p99 string) {
	if q == nil {
		return "-", "-"
	}
	return brief(q.P50), brief(q.P99)
}

// brief writes a duration with three digits.
func brief(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return fmt.Sprintf("%dµs", d.Microseconds())
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2fms", d.Seconds()*1e3)
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1fms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.2fs", d.Seconds())
	}
}

// closing says what was seen.
func (r *result) closing() string {
	var right []string
	var b strings.Builder
	for _, o := range r.Runs {
		faults := strings.Join(o.Faults, "; ")
		switch {
		case !o.Locked:
			fmt.Fprintf(&b, "With no lock, %s of %s was lost. ", money(o.Expected-o.Actual), money(o.Expected))
		case o.Algorithm == broken.name && o.OK:
			b.WriteString("The machine that is wrong on purpose was not caught this time. ")
		case o.Algorithm == broken.name:
			fmt.Fprintf(&b, "The machine that is wrong on purpose was caught: %s. ", faults)
		case !o.OK:
			fmt.Fprintf(&b, "FAILED under %s: %s. ", o.Algorithm, faults)
		default:
			right = append(right, o.Algorithm)
		}
	}
	if len(right) > 0 {
		under := strings.Join(right, ", ")
		if len(right) == len(algorithms) {
			under = fmt.Sprintf("all %d algorithms", len(right))
		}
		fmt.Fprintf(&b, "Under %s not a cent was lost, no two tellers met inside, every fence rose, and the messages were as many as the formula says.", under)
	}
	return wrap(b.String(), 96)
}
