package draw_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/trace"
)

// Nodes that share a lock hold it together, and that is no fault. The same holds would be faults if
// the traces said that the nodes had it alone; but then the traces do not replay.
func TestJudgeShared(t *testing.T) {
	members := dmutextest.Nodes(3)
	events := make(map[dmutex.NodeID][]trace.Event)
	_, err := dmutextest.Simulate(dmutextest.SimConfig{
		Algorithm: central.New, Members: members, Entries: 100, Seed: 1, Hold: 5, Think: 5, Shares: 0.7,
		Trace: func(self dmutex.NodeID, e *trace.Event) { events[self] = append(events[self], *e) },
	})
	require.NoError(t, err)
	var all []*trace.Trace
	text, err := trace.Describe(central.New, 1, members)
	require.NoError(t, err)
	for _, id := range members {
		all = append(all, &trace.Trace{Name: id.String(), Header: trace.Header{Self: id, Members: members, Algorithm: text}, Events: events[id]})
		_, err := dmutextest.Replay(all[len(all)-1], central.New)
		require.NoError(t, err)
	}
	v, err := draw.Judge(all)
	require.NoError(t, err)
	require.Empty(t, v.Faults)
	require.Equal(t, 100, v.Grants)
	drawn, err := draw.New(all, draw.Options{})
	require.NoError(t, err)
	svg := string(drawn.SVG())
	require.NotContains(t, svg, `stroke=""`, "a kind of message has no color")
	for _, says := range []string{">SHARE<", ">in the critical section<", ">in the critical section, which it shares<", " shares the lock with fence "} {
		require.Contains(t, svg, says)
	}
	for _, tr := range all {
		for i := range tr.Events {
			tr.Events[i].Shared = false
		}
		_, err := dmutextest.Replay(tr, central.New)
		require.ErrorContains(t, err, "recorded shared: false, now true")
	}
	v, err = draw.Judge(all)
	require.NoError(t, err)
	require.NotEmpty(t, v.Faults)
}
