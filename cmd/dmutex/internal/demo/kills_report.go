package demo

import (
	"fmt"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// writeKillRuns writes the results of the runs with --kill, or of the last run.
func (r *result) writeKillRuns(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d tellers make deposits over %s, while they are killed and started again.\n\n", r.Nodes, network(r.Link))
	rows := make([][]string, 0, len(r.KillRuns))
	for _, o := range r.KillRuns {
		rows = append(rows, []string{
			o.Algorithm, money(o.Expected), money(o.Actual), fmt.Sprint(o.Overlaps), fmt.Sprint(o.FenceErrors),
			fmt.Sprint(o.Killed), fmt.Sprint(o.Inside), fmt.Sprint(o.Closed),
			fmt.Sprint(o.Views), brief(o.Longest), brief(o.Back),
		})
	}
	tool.Tabulate(b, killHeadings, rows)
	b.WriteString(killLegend)
	b.WriteString("\n" + r.killClosing() + "\n")
}

var killHeadings = []tool.Heading{
	{Columns: []string{"algorithm"}},
	{Title: "balance", Columns: []string{"expected", "actual"}},
	{Title: "violations", Columns: []string{"overlap", "fence"}},
	{Title: "tellers", Columns: []string{"killed", "inside", "closed"}},
	{Title: "view changes", Columns: []string{"number", "longest"}},
	{Columns: []string{"all back"}},
}

const killLegend = `
expected  what the lines of the account are worth, one for each deposit
killed    with SIGKILL, and started again; inside: of these, in the critical section
closed    tellers that left and were started again
longest   time for which a view change kept a teller from the lock
all back  longest time from such an event until every teller had made a deposit again, with the
          start of the process
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
