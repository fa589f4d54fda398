package demo

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// writeKillRuns writes the results of the runs with --kill or --crash, or of the last run.
func (r *result) writeKillRuns(b *strings.Builder) {
	how, headings, cells, legend := ", while they are killed and started again", killHeadings, (*killOutcome).killCells, killLegend
	if r.Lease != 0 {
		how = fmt.Sprintf(", lease %v, --store=%s, while they are killed for good and new ones join", r.Lease, r.Store)
		headings, cells, legend = crashHeadings, (*killOutcome).crashCells, crashLegend
	}
	fmt.Fprintf(b, "\n%s\n\n", tool.Wrap(fmt.Sprintf("%d tellers make deposits over %s%s.", r.Nodes, network(r.Link), how)))
	var rows [][]string
	for _, o := range r.KillRuns {
		rows = append(rows, slices.Concat(o.evidence.cells(o.Algorithm), cells(&o)))
	}
	tool.Tabulate(b, slices.Concat(evidenceHeadings, headings), rows)
	b.WriteString(legend + "\n" + r.killClosing() + "\n")
}

var killHeadings = []tool.Heading{
	{Title: "tellers", Columns: []string{"killed", "inside", "closed"}},
	{Title: "view changes", Columns: []string{"number", "longest"}},
	{Columns: []string{"all back"}},
}

func (o *killOutcome) killCells() []string {
	return []string{fmt.Sprint(o.Killed), fmt.Sprint(o.Inside), fmt.Sprint(o.Closed), fmt.Sprint(o.Views), brief(o.Longest), brief(o.Back)}
}

const killLegend = `
expected  what the lines of the account are worth, one for each deposit
killed    with SIGKILL, and started again; inside: of these, in the critical section
closed    tellers that left and were started again
longest   time for which a view change kept a teller from the lock
all back  longest time from such an event until every teller had made a deposit again, with the
          start of the process
`

var crashHeadings = []tool.Heading{
	{Title: "killed", Columns: []string{"idle", "holding"}},
	{Title: "longest wait", Columns: []string{"free", "held", "at home"}},
	{Columns: []string{"views"}},
}

func (o *killOutcome) crashCells() []string {
	var longest crash
	for _, c := range o.Crashes {
		longest = crash{Free: max(longest.Free, c.Free), Holder: max(longest.Holder, c.Holder), Home: max(longest.Home, c.Home)}
	}
	cells := []string{fmt.Sprint(o.Killed - o.Inside), fmt.Sprint(o.Inside), "-", "-", "-", fmt.Sprint(o.Views)}
	for i, wait := range []time.Duration{longest.Free, longest.Holder, longest.Home} {
		if wait > 0 { // else there was no such lock
			cells[2+i] = brief(wait)
		}
	}
	return cells
}

const crashLegend = `
expected  what the lines of the account are worth, one for each deposit
holding   killed while they held the lock of the account; idle: while they held none
free      longest wait of the others, up to the next kill, for a lock that the dead neither held
          nor was the home of
held      for the one that it held; at home: for those at home with it
views     view changes of the group
`

// killClosing says what was seen in the runs with kills, also those of --crash.
func (r *result) killClosing() string {
	var right []string
	var b strings.Builder
	killed, closed, servers, joined := 0, 0, 0, 0
	for _, o := range r.KillRuns {
		killed, closed, servers, joined = killed+o.Killed, closed+o.Closed, servers+o.Servers, joined+o.Joined
		if o.OK {
			right = append(right, o.Algorithm)
		} else {
			fmt.Fprintf(&b, "FAILED under %s: %s. ", o.Algorithm, strings.Join(o.Faults, "; "))
		}
	}
	if r.Lease != 0 {
		fmt.Fprintf(&b, "Tellers were killed for good %s, and new ones joined %s", times(killed), times(joined))
	} else {
		fmt.Fprintf(&b, "Tellers were killed %s and closed %s", times(killed), times(closed))
	}
	if servers > 0 {
		fmt.Fprintf(&b, ", and the NATS server was stopped %s", times(servers))
	}
	if b.WriteString(". "); len(right) > 0 {
		fmt.Fprintf(&b, "Under %s not a cent was lost, no two tellers met inside, and every fence rose.", names(right))
	}
	return tool.Wrap(b.String())
}
