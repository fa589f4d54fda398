package demo

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// An outcome is the result of one run of tellers. Money is in cents, times are in
// nanoseconds.
type outcome struct {
	Algorithm string `json:"algorithm"`
	About     string `json:"about"`
	Locked    bool   `json:"locked"`
	OK        bool   `json:"ok"` // nothing happened that a lock has to prevent

	evidence

	Messages *messages     `json:"messages,omitempty"`
	Acquire  *quantiles    `json:"acquire,omitempty"`
	HandOff  *quantiles    `json:"hand_off,omitempty"`
	Took     time.Duration `json:"took_ns"`
	Faults   []string      `json:"faults,omitempty"` // what a lock has to prevent and did not, in words
}

// evidence is what a run of tellers has left behind, independent of the lock.
type evidence struct {
	Entries     int   `json:"entries"` // into the critical section: deposits made
	Expected    int64 `json:"expected_cents"`
	Actual      int64 `json:"actual_cents"`
	Overlaps    int   `json:"overlaps"`     // deposits that found another teller inside
	FenceErrors int   `json:"fence_errors"` // deposits whose fence had not risen
}

// messages compares what was sent with the formula.
type messages struct {
	catalog.Messages
	Tellers []tally `json:"tellers"`
}

// A work is what the tellers of a run did, by teller.
type work struct {
	records [][]record
	counts  []counts
	took    time.Duration // from the first deposit to the last
}

type tally struct {
	Node     dmutex.NodeID     `json:"node"`
	Entries  int               `json:"entries"`
	Sent     map[string]uint64 `json:"sent"`
	Received map[string]uint64 `json:"received"`
}

// quantiles of some durations; Count is how many they were.
type quantiles struct {
	Count int           `json:"count"`
	P50   time.Duration `json:"p50_ns"`
	P99   time.Duration `json:"p99_ns"`
}

// audit judges a run by its passbook, its records and its counters.
func audit(alg catalog.Algorithm, nodes int, book evidence, w work) outcome {
	records := slices.Concat(w.records...)
	o := outcome{Algorithm: alg.Name, About: alg.About, Locked: alg.New != nil, evidence: book, Took: w.took}
	o.Expected = int64(len(records)) * deposit
	if o.Locked {
		o.Messages = countMessages(alg, nodes, w)
		var acquired []time.Duration
		for _, r := range records {
			acquired = append(acquired, time.Duration(r.Granted-r.Called))
		}
		o.Acquire, o.HandOff = newQuantiles(acquired), handOffTimes(records)
		o.Faults = o.faults()
	} else {
		o.FenceErrors = 0 // there are no fences
	}
	o.OK = len(o.Faults) == 0
	return o
}

// countMessages sums up what all tellers sent. No message is in flight when they
// are counted, so each belongs to an entry that was made.
func countMessages(alg catalog.Algorithm, nodes int, w work) *messages {
	var m messages
	var all uint64
	entries := 0
	for i, c := range w.counts {
		t := tally{dmutex.NodeID(i + 1), len(w.records[i]), make(map[string]uint64), make(map[string]uint64)}
		for k := range dmutex.Kinds {
			if c.Sent[k]+c.Received[k] > 0 {
				t.Sent[dmutex.Kind(k).String()] = c.Sent[k]
				t.Received[dmutex.Kind(k).String()] = c.Received[k]
			}
			all += c.Sent[k]
		}
		if !alg.OwnFree || c.Sent[dmutex.Request] > 0 {
			entries += t.Entries
		}
		m.Tellers = append(m.Tellers, t)
	}
	m.Messages = alg.Count(nodes, all, entries)
	return &m
}

// handOffTimes are from the call of Release to the return of the next Acquire, if
// that one was waiting already.
func handOffTimes(records []record) *quantiles {
	byFence := slices.SortedFunc(slices.Values(records), func(a, b record) int { return cmp.Compare(a.Fence, b.Fence) })
	var d []time.Duration
	for i, next := range byFence[min(1, len(byFence)):] {
		if last := byFence[i]; next.Called < last.Left {
			d = append(d, time.Duration(next.Granted-last.Left))
		}
	}
	return newQuantiles(d)
}

// newQuantiles returns nil if there is nothing to measure.
func newQuantiles(d []time.Duration) *quantiles {
	if len(d) == 0 {
		return nil
	}
	slices.Sort(d)
	at := func(percent int) time.Duration { return d[(len(d)*percent+99)/100-1] }
	return &quantiles{len(d), at(50), at(99)}
}

// faults says what a lock has to prevent and did not.
func (o *evidence) faults() (f tool.Phrases) {
	f.Add(o.Actual != o.Expected, "the account has %s instead of %s", money(o.Actual), money(o.Expected))
	f.Add(o.Overlaps > 0, "%d of %d deposits found another teller inside", o.Overlaps, o.Entries)
	f.Add(o.FenceErrors > 0, "%d fences had not risen", o.FenceErrors)
	return f
}

// faults says also whether the messages were too many or too few.
func (o *outcome) faults() tool.Phrases {
	f, m := o.evidence.faults(), o.Messages
	f.Add(!m.Fit(), "%d messages for %d entries, where %s says %s an entry", m.Sent, m.Entries, m.Formula, m.Span())
	return f
}

// money writes cents as units.
func money(cents int64) string { return fmt.Sprintf("%d.%02d", cents/100, cents%100) }

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
func (r *result) writeText(w io.Writer) {
	if len(r.Runs) > 0 {
		r.writeRuns(w)
	}
	if len(r.KillRuns) > 0 {
		r.writeKillRuns(w)
	}
	if len(r.Runs) > 0 && r.OK {
		fmt.Fprint(w, "\nTo see tellers killed for good, and new ones take their place: dmutex demo --crash\n")
	}
}

func (r *result) writeRuns(w io.Writer) {
	fmt.Fprintf(w, "\n%d tellers, each a process of its own, make %d deposits of %s each into one account, over %s.\n\n",
		r.Nodes, r.Deposits, money(deposit), network(r.Link))
	var rows [][]string
	for _, o := range r.Runs {
		rows = append(rows, o.cells())
	}
	tool.Tabulate(w, slices.Concat(evidenceHeadings, lockHeadings), rows)
	fmt.Fprintf(w, "%s%-12s  messages/entry, N = %d\n", legend, "algorithm", r.Nodes)
	for _, o := range r.Runs {
		formula := ""
		if o.Messages != nil {
			formula = o.Messages.Formula
		}
		fmt.Fprintf(w, "%-12s  %-14s  %s\n", o.Algorithm, formula, o.About)
	}
	fmt.Fprintf(w, "\n%s\n", r.closing())
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
	var said tool.Phrases
	for _, o := range r.Runs {
		broken, faults := o.Algorithm == catalog.Broken.Name, strings.Join(o.Faults, "; ")
		said.Add(!o.Locked, "With no lock, %s of %s was lost.", money(o.Expected-o.Actual), money(o.Expected))
		said.Add(broken && o.OK, "The machine that is wrong on purpose was not caught this time.")
		said.Add(broken && !o.OK, "The machine that is wrong on purpose was caught: %s.", faults)
		said.Add(o.Locked && !broken && !o.OK, "FAILED under %s: %s.", o.Algorithm, faults)
		if o.Locked && !broken && o.OK {
			right = append(right, o.Algorithm)
		}
	}
	said.Add(len(right) > 0, "Under %s not a cent was lost, no two tellers met inside, every fence rose, and the messages were as many as the formula says.", names(right))
	return tool.Wrap(strings.Join(said, " "))
}

func names(algorithms []string) string {
	if len(algorithms) == len(catalog.All) {
		return fmt.Sprintf("all %d algorithms", len(algorithms))
	}
	return strings.Join(algorithms, ", ")
}
