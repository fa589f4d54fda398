package demo

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
)

// writeCrashRuns writes the results of the runs with --crash.
func (r *result) writeCrashRuns(b *strings.Builder) {
	fmt.Fprintf(b, "\n%d tellers make deposits over %s, lease %v, while they are killed for good and new ones join.\n\n",
		r.Nodes, network(r.Link), r.Lease)
	rows := make([][]string, 0, len(r.KillRuns))
	for _, o := range r.KillRuns {
		median, longest := "-", "-"
		if f := slices.Sorted(slices.Values(o.Failovers)); len(f) > 0 {
			median, longest = brief(f[len(f)/2]), brief(f[len(f)-1])
		}
		rows = append(rows, []string{
			o.Algorithm, money(o.Expected), money(o.Actual), fmt.Sprint(o.Overlaps), fmt.Sprint(o.FenceErrors),
			fmt.Sprint(o.Killed), fmt.Sprint(o.Joined), median, longest,
			fmt.Sprint(o.Views), fmt.Sprint(o.Entries),
		})
	}
	tool.Tabulate(b, crashHeadings, rows)
	b.WriteString(crashLegend)
	b.WriteString("\n" + r.killClosing() + "\n")
}

var crashHeadings = []tool.Heading{
	{Columns: []string{"algorithm"}},
	{Title: "balance", Columns: []string{"expected", "actual"}},
	{Title: "violations", Columns: []string{"overlap", "fence"}},
	{Title: "tellers", Columns: []string{"killed", "joined"}},
	{Title: "failovers", Columns: []string{"median", "longest"}},
	{Columns: []string{"views"}},
	{Columns: []string{"grants"}},
}

const crashLegend = `
expected   what the lines of the account are worth, one for each deposit
failovers  from the kill of a teller that held the lock until the lock was granted again
views      view changes of the group
grants     deposits made under the lock
`
