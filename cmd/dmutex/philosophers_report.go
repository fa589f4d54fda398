package main

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// dinners are all that a demo of philosophers found out.
type dinners struct {
	Link         string        `json:"link"`
	Philosophers int           `json:"philosophers"`
	Meals        int           `json:"meals_each"`
	Think        time.Duration `json:"think_ns"`
	Detect       time.Duration `json:"detect_ns"`
	Watched      time.Duration `json:"watched_ns"`
	OK           bool          `json:"ok"` // all dinners were completed, and none was wrong
	Error        string        `json:"error,omitempty"`
	Runs         []tables      `json:"runs"`
}

// tables are the two dinners under one algorithm.
type tables struct {
	Algorithm string   `json:"algorithm"`
	Without   evening  `json:"without_detection"` // it was not finished: only the meals are known
	With      evening  `json:"with_detection"`
	Faults    []string `json:"faults,omitempty"`
	OK        bool     `json:"ok"`
}

// judge comes to the verdict; err is why not all dinners could be completed.
func (r *dinners) judge(err error) {
	r.OK = err == nil
	if err != nil {
		r.Error = err.Error()
	}
	for i := range r.Runs {
		t := &r.Runs[i]
		t.Faults = t.With.faults(r.Meals)
		if n := t.Without.eaten(); n > 0 {
			t.Faults = append(t.Faults, fmt.Sprintf("without detection %s were eaten, while all forks were taken", several(n, "meal")))
		}
		t.OK = len(t.Faults) == 0
		r.OK = r.OK && t.OK
	}
}

func (r *dinners) writeJSON(w io.Writer) error { return printJSON(w, r) }

// writeText writes the result for people: what was done, every circle, the
// table, and what was seen.
func (r *dinners) writeText(w io.Writer) error {
	if len(r.Runs) == 0 {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", wrap(fmt.Sprintf("%d philosophers, each a process of its own, want %s each, over %s. The circles that were "+
		"found, from the victim on, who waits for a fork that the next one holds, and so on:",
		r.Philosophers, several(r.Meals, "meal"), strings.ToUpper(r.Link)), 96))
	var rows [][]string
	for _, t := range r.Runs {
		for i, c := range t.With.Circles {
			fmt.Fprintf(&b, "%-12s  circle %d: %v\n", t.Algorithm, i+1, c)
		}
		e := t.With
		rows = append(rows, []string{
			t.Algorithm, fmt.Sprint(t.Without.eaten()),
			fmt.Sprint(e.eaten()), fmt.Sprint(len(e.Circles)), fmt.Sprint(e.Overlaps), fmt.Sprint(e.Busy), brief(e.Took),
		})
	}
	b.WriteString("\n")
	tabulate(&b, []heading{
		{"", []string{"algorithm"}},
		{"nobody looks", []string{"meals"}},
		{"circles are looked for", []string{"meals", "circles", "overlap", "kept", "took"}},
	}, rows)
	fmt.Fprintf(&b, dinnerLegend, r.Watched)
	b.WriteString(r.closing() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const dinnerLegend = `
nobody looks  the table was watched for %v, and its processes ended
circles       found: one at each meal; its victim puts its fork back and tries again
overlap       forks that were taken while in another hand, by a marker file
kept          forks that somebody held or waited for in the end

`

// String draws the circle from its victim on.
func (c circle) String() string {
	var b strings.Builder
	for i, e := range c {
		if i == 0 {
			b.WriteString(e.Waiter.String())
		}
		fmt.Fprintf(&b, " -%s-> %v", e.Fork, e.Holder)
	}
	return b.String()
}

// closing says what was seen.
func (r *dinners) closing() string {
	var b strings.Builder
	circles, right := 0, 0
	for _, t := range r.Runs {
		if !t.OK {
			fmt.Fprintf(&b, "FAILED under %s: %s. ", t.Algorithm, strings.Join(t.Faults, "; "))
			continue
		}
		right++
		circles += len(t.With.Circles)
	}
	if right > 0 {
		fmt.Fprintf(&b, "Where nobody looked, everybody held one fork and nobody ate. Where circles were looked for everybody ate: "+
			"%s, as many victims tried again, no fork was in two hands, and in the end none was held.", found(circles))
	}
	return wrap(b.String(), 96)
}

func found(circles int) string {
	if circles == 1 {
		return "1 circle was found"
	}
	return several(circles, "circle") + " were found"
}
