package metrics

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/node"
)

var _ = flag.Bool("update", false, "write docs/metrics.md")

// The page lists the tables.
func TestPage(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# The metrics

What [dmutexprom](../metrics/prom) and [dmutexotel](../metrics/otel) export. Alerts and a dashboard for
them are in [alerts.yaml](../metrics/prom/alerts.yaml) and [dashboard.json](../metrics/prom/dashboard.json);
[What to watch](operating.md#what-to-watch) says what each alert means. A timestamp is in seconds since 1970:
alert on ` + "`time()`" + ` minus it. In OpenTelemetry a label has the name with ` + "`dmutex.`" + ` before it, such as
` + "`dmutex.peer`" + `. A peer's label is its ` + "`Config.Name`" + `, or ` + "`node 3`" + ` while that is not known.
No label has the name of a lock, unless ` + "`Options.Lock`" + ` makes one.
`)
	for _, part := range []struct {
		title string
		of    table
	}{{"The present state of a node", ofNode}, {"A client", ofClient}, {"What an Observer sees, of a node or a client", Observed}} {
		fmt.Fprintf(&b, "\n## %s\n\n| Prometheus | OpenTelemetry | |\n|---|---|---|\n", part.title)
		for _, m := range part.of {
			name := m.Prometheus()
			if m.Label != "" {
				name += "{" + m.Label + "}"
			}
			kind := []string{"", "", ", a counter", ", a histogram"}[m.Kind]
			fmt.Fprintf(&b, "| `%s` | `%s`%s | %s |\n", name, m.OTel(), kind, m.Help)
		}
	}
	goldentest.Compare(t, "../../docs/metrics.md", b.String())
}

// Each metric of a client's table is read.
func TestClient(t *testing.T) {
	st := client.Status{
		Member: "a", Remaining: 2 * time.Second, Holds: []string{"x", "y"}, WaitsFor: []string{"z"}, Sessions: 3, Lost: 4, Refused: 5, Moved: 6,
	}
	seen := make(map[string]float64)
	readClient(st, func(m *Metric, value float64, label ...string) { seen[m.Prometheus()+strings.Join(label, "")] = value })
	require.Equal(t, map[string]float64{
		"dmutex_session_up": 1, "dmutex_session_remaining_seconds": 2, "dmutex_session_begun_total": 3, "dmutex_session_lost_total": 4,
		"dmutex_session_locksheld": 2, "dmutex_session_lockswaiting": 1, "dmutex_session_refused_total": 5, "dmutex_session_moved_total": 6,
	}, seen)
	require.Len(t, ofClient, len(seen)-1)
}

// Each metric of a node's table is read, with a value for its label if it has one; and one that is
// about nothing is absent.
func TestNode(t *testing.T) {
	read := func(st node.Status) map[*Metric]int {
		seen := make(map[*Metric]int)
		readNode(st, time.Unix(1e9, 0), func(m *Metric, _ float64, label ...string) {
			require.Equal(t, m.Label != "", len(label) == 1, m.Name)
			seen[m]++
		})
		return seen
	}
	all := read(node.Status{
		Lease: &node.LeaseStatus{}, Draining: 1, Held: 1, Waiting: 1, Peers: []node.PeerStatus{{Silent: 1, RoundTrip: 1}},
	})
	names := make(map[string]bool)
	for _, m := range ofNode {
		require.NotZero(t, all[m], "%s is not read", m.Name)
		require.False(t, names[m.Name], m.Name)
		names[m.Name] = true
	}
	require.Len(t, all, len(ofNode))
	require.Equal(t, dmutex.Kinds-1, all[sent])
	for m := range read(node.Status{View: node.ViewStatus{Acts: true}}) {
		require.NotContains(t, []*Metric{down, lease, late, excluded, draining, drain, clients, lent, rejected, gone, claimed, takeover, oldest, heard, trip}, m, m.Name)
	}
}

// A peer whose name is not known gets no label that another has, which may be named by a number: Prometheus takes
// nothing from a process that has one series twice.
func TestPeersDiffer(t *testing.T) {
	seen := make(map[string]bool)
	readNode(node.Status{Peers: []node.PeerStatus{{ID: 2}, {ID: 3, Name: "2"}}}, time.Unix(1e9, 0), func(m *Metric, _ float64, label ...string) {
		series := m.Name + strings.Join(label, "")
		require.False(t, seen[series], series)
		seen[series] = true
	})
}
