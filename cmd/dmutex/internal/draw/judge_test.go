package draw_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/draw"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/trace"
)

// Judge finds traces that were tampered with, because they contradict each other. Some of them
// replay alone.
func TestJudge(t *testing.T) {
	drop := func(what trace.What, peer dmutex.NodeID) func(all []*trace.Trace) {
		return func(all []*trace.Trace) {
			for _, tr := range all {
				tr.Events = slices.DeleteFunc(tr.Events, func(e trace.Event) bool { return e.What == what && e.Peer == peer })
			}
		}
	}
	change := func(file int, what trace.What, of func(e *trace.Event) bool, do func(e *trace.Event)) func(all []*trace.Trace) {
		return func(all []*trace.Trace) {
			i := slices.IndexFunc(all[file-1].Events, func(e trace.Event) bool { return e.What == what && of(&e) })
			require.GreaterOrEqual(t, i, 0)
			do(&all[file-1].Events[i])
		}
	}
	any := func(*trace.Event) bool { return true }
	longer := func(all []*trace.Trace) {
		for i, e := range all[1].Events {
			if e.What == trace.Lease {
				all[1].Events[i].N += 5e9
			}
		}
	}
	proof := func(all []*trace.Trace, at int, of dmutex.NodeID) {
		all[0].Events = slices.Insert(all[0].Events, at, trace.Event{Time: all[0].Events[at].Time, What: trace.Dead, Peer: of, N: 1})
	}
	for _, tt := range []struct {
		name string
		do   func(all []*trace.Trace)
		want string
	}{
		{"nothing", func([]*trace.Trace) {}, ""},
		{"no exclusion", drop(trace.Excluded, 2), `3.trace:24: lock "invoices": N3 was granted fence 4:1 in a view without N2, which has fence 3:1, and was not excluded (`},
		{"a lease that still runs", longer, `3.trace:24: lock "invoices": N3 was granted fence 4:1 3.8060 s before N2 had given up fence 3:1 (2.trace:13)`},
		{"a proof that its process has ended", func(all []*trace.Trace) { longer(all); proof(all, 20, 2) }, ""},
		{"a proof that all former members have ended", func(all []*trace.Trace) { longer(all); proof(all, 20, dmutex.None) }, ""},
		{"such a proof while it was a member", func(all []*trace.Trace) { longer(all); proof(all, 5, dmutex.None) }, "before N2 had given up fence 3:1"},
		{"no crash", func(all []*trace.Trace) {
			longer(all)
			all[1].Events = append(all[1].Events, trace.Event{Time: 5e9, What: trace.Silent, Peer: 1})
		}, `N3 was granted fence 4:1 3.8060 s before N2 had given up fence 3:1`},
		{"no release", func(all []*trace.Trace) {
			i := slices.IndexFunc(all[2].Events, func(e trace.Event) bool { return e.What == trace.Release })
			all[2].Events = slices.Delete(all[2].Events, i, i+1)
		}, `4.trace:9: lock "invoices": N4 was granted fence 5:1 `},
		{"another message", func(all []*trace.Trace) {
			change(3, trace.Handle, func(e *trace.Event) bool { return e.In.Kind == dmutex.Grant }, func(e *trace.Event) { e.In.Fence, e.Fence = e.In.Fence+5, e.Fence+5 })(all)
			_, err := dmutextest.Replay(all[2], central.New)
			require.NoError(t, err)
		}, `3.trace:24: lock "invoices": 1->3 GRANT attempt=1 fence=16777221 came here, and N1 has sent 1->3 GRANT attempt=1 fence=16777216`},
		{"a message from nowhere", func(all []*trace.Trace) {
			change(1, trace.Handle, func(e *trace.Event) bool { return len(e.Out) > 0 }, func(e *trace.Event) { e.Out[0].Seq = 99 })(all)
		}, `3.trace:24: lock "invoices": 1->3 GRANT attempt=1 fence=16777216 came here, and N1 has not sent it`},
		{"a view with other members", change(3, trace.View, func(e *trace.Event) bool { return e.N == 5 }, func(e *trace.Event) { e.Members = []dmutex.NodeID{3, 4} }),
			`view 5 has the members [3 4] here, and [1 3 4] for N1`},
		{"a fence twice", change(4, trace.Handle, any, func(e *trace.Event) { e.Fence = 16777217 }), `N4 was granted fence 4:1, which N3 was granted before`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := figure(t, "failover", 4)
			tt.do(all)
			v, err := draw.Judge(all)
			require.NoError(t, err)
			require.Equal(t, 1, v.Locks)
			require.Equal(t, 3, v.Grants)
			if tt.want == "" {
				require.Empty(t, v.Faults)
			} else {
				require.Contains(t, strings.Join(v.Faults, "\n"), tt.want)
			}
		})
	}

	v, err := draw.Judge(read(t, cutOff))
	require.NoError(t, err)
	require.Equal(t, draw.Verdict{Locks: 1, Grants: 2}, v)
	v, err = draw.Judge(figure(t, "restart", 6))
	require.NoError(t, err)
	require.Equal(t, draw.Verdict{Locks: 1, Grants: 4}, v)

	// A gap may hide the release, so this is no fault.
	all := figure(t, "failover", 4)
	i := slices.IndexFunc(all[2].Events, func(e trace.Event) bool { return e.What == trace.Release })
	all[2].Events[i] = trace.Event{Time: all[2].Events[i].Time, What: trace.Gap, N: 1}
	v, err = draw.Judge(all)
	require.NoError(t, err)
	require.Empty(t, v.Faults)
}
