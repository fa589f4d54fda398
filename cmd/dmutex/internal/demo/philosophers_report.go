package demo

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// dinners are all that a demo of philosophers found out.
type dinners struct {
	Link         string        `json:"link"`
	Philosophers int           `json:"philosophers"`
	Meals        int           `json:"meals_each"`
	Think        time.Duration `json:"think_ns"`
	Detect       time.Duration `json:"detect_ns"`
	Watched      time.Duration `json:"watched_ns"`
	verdict
	Runs []tables `json:"runs"`
}

// tables are the two dinners under one algorithm.
type tables struct {
	Algorithm string   `json:"algorithm"`
	Without   dinner   `json:"without_detection"` // only the meals are known of it
	With      dinner   `json:"with_detection"`
	Faults    []string `json:"faults,omitempty"`
	OK        bool     `json:"ok"`
}

func (r *dinners) judge(err error) bool {
	r.verdict = newVerdict(err)
	for i := range r.Runs {
		t := &r.Runs[i]
		t.Faults = t.With.faults(r.Meals)
		if n := sum(t.Without.Meals); n > 0 {
			t.Faults = append(t.Faults, fmt.Sprintf("without detection %s were eaten, while all forks were taken", tool.Several(n, "meal")))
		}
		t.OK = len(t.Faults) == 0
		r.OK = r.OK && t.OK
	}
	return r.OK
}

// writeText writes the result for people: what was done, the cycles, the table,
// and what was seen.
func (r *dinners) writeText(w io.Writer) error {
	if len(r.Runs) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", tool.Wrap(fmt.Sprintf("%d philosophers, each a process of its own, want %s each, over %s. These cycles were "+
		"found. Each begins with its victim, which waits for a fork that the next one holds, and so on:",
		r.Philosophers, tool.Several(r.Meals, "meal"), network(r.Link))))
	var rows [][]string
	for _, t := range r.Runs {
		var found []string // in the order in which they were first found
		seen := make(map[string]int)
		for _, c := range t.With.Cycles {
			if seen[c.String()]++; seen[c.String()] == 1 {
				found = append(found, c.String())
			}
		}
		for _, c := range found {
			fmt.Fprintf(&b, "%-12s  %s: %s\n", t.Algorithm, times(seen[c]), c)
		}
		d := t.With
		rows = append(rows, []string{
			t.Algorithm, fmt.Sprint(sum(t.Without.Meals)),
			fmt.Sprint(sum(d.Meals)), fmt.Sprint(len(d.Cycles)), fmt.Sprint(d.Overlaps), fmt.Sprint(d.Busy), brief(d.Took),
		})
	}
	b.WriteString("\n")
	tool.Tabulate(&b, []tool.Heading{
		{Columns: []string{"algorithm"}},
		{Title: "no detection", Columns: []string{"meals"}},
		{Title: "with detection", Columns: []string{"meals", "cycles", "overlap", "kept", "took"}},
	}, rows)
	fmt.Fprintf(&b, dinnerLegend, r.Watched)
	b.WriteString(r.closing() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return tool.Several(n, "time")
}

const dinnerLegend = `
no detection  the demo watched the table for %v, and then ended the processes
cycles        found: one at each meal; its victim puts its fork back and tries again
overlap       forks that were taken while in another hand, by a marker file
kept          forks that were held or waited for in the end

`

// String draws the cycle from its victim on.
func (c cycle) String() string {
	var b strings.Builder
	for i, e := range c {
		if i == 0 {
			b.WriteString(e.Waiter.String())
		}
		fmt.Fprintf(&b, " -%s-> %v", e.Lock, e.Holder)
	}
	return b.String()
}

func (r *dinners) closing() string {
	var b strings.Builder
	cycles, right := 0, 0
	for _, t := range r.Runs {
		if !t.OK {
			fmt.Fprintf(&b, "FAILED under %s: %s. ", t.Algorithm, strings.Join(t.Faults, "; "))
			continue
		}
		right++
		cycles += len(t.With.Cycles)
	}
	if right > 0 {
		were := "were"
		if cycles == 1 {
			were = "was"
		}
		fmt.Fprintf(&b, "Without detection everybody held one fork and nobody ate. With detection everybody ate: "+
			"%s %s found, as many victims tried again, no fork was in two hands, and in the end none was held.", tool.Several(cycles, "cycle"), were)
	}
	return tool.Wrap(b.String())
}
