package dmutexprom_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/metrics/prom"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// observed runs a test in fake time, with two nodes. The first one is observed.
func observed(t *testing.T, o *node.Observer, test func(t *testing.T, one, two *node.Node)) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		open := func(id dmutex.NodeID, o *node.Observer) *node.Node {
			n, err := node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2}, net.Link(id), node.Config{
				Algorithm: ricart.New, Name: fmt.Sprint("web-", id), Observer: o,
			})
			require.NoError(t, err)
			return n
		}
		one, two := open(1, o), open(2, nil)
		require.NoError(t, one.Ready(t.Context()))
		require.NoError(t, two.Ready(t.Context()))
		synctest.Wait() // the Observer knows of the view
		test(t, one, two)
		hurry, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = one.Close(hurry)
		_ = two.Close(hurry)
	})
}

func acquire(t *testing.T, n *node.Node, name string) lock.Held {
	t.Helper()
	h, err := n.Mutex(name).Acquire(t.Context())
	require.NoError(t, err)
	return h
}

// L79: the user does not have to measure waits and holds himself.
func TestHistograms(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{Buckets: []float64{1, 10}})
	require.NoError(t, err)
	none := func(metric string, outcomes ...string) (lines string) {
		for _, outcome := range outcomes {
			for _, row := range []string{`_bucket{outcome=%q,le="1"}`, `_bucket{outcome=%q,le="10"}`, `_bucket{outcome=%q,le="+Inf"}`, `_sum{outcome=%q}`, `_count{outcome=%q}`} {
				lines += fmt.Sprintf(metric+row+" 0\n", outcome)
			}
		}
		return lines
	}
	observed(t, h.Observer(), func(t *testing.T, one, two *node.Node) {
		first := acquire(t, one, "x")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := one.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		later := make(chan lock.Held)
		go func() {
			h, err := one.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			later <- h
		}()
		time.Sleep(15 * time.Second)
		require.NoError(t, first.Release())
		require.NoError(t, (<-later).Release())
		require.NoError(t, testutil.CollectAndCompare(h, strings.NewReader(`
# HELP dmutex_hold_seconds How long a lock was held.
# TYPE dmutex_hold_seconds histogram
dmutex_hold_seconds_bucket{outcome="released",le="1"} 1
dmutex_hold_seconds_bucket{outcome="released",le="10"} 1
dmutex_hold_seconds_bucket{outcome="released",le="+Inf"} 2
dmutex_hold_seconds_sum{outcome="released"} 20
dmutex_hold_seconds_count{outcome="released"} 2
`+none("dmutex_hold_seconds", "lost")+`# HELP dmutex_wait_seconds How long an Acquire or TryAcquire took.
# TYPE dmutex_wait_seconds histogram
dmutex_wait_seconds_bucket{outcome="deadline",le="1"} 0
dmutex_wait_seconds_bucket{outcome="deadline",le="10"} 1
dmutex_wait_seconds_bucket{outcome="deadline",le="+Inf"} 1
dmutex_wait_seconds_sum{outcome="deadline"} 5
dmutex_wait_seconds_count{outcome="deadline"} 1
dmutex_wait_seconds_bucket{outcome="granted",le="1"} 1
dmutex_wait_seconds_bucket{outcome="granted",le="10"} 1
dmutex_wait_seconds_bucket{outcome="granted",le="+Inf"} 2
dmutex_wait_seconds_sum{outcome="granted"} 15
dmutex_wait_seconds_count{outcome="granted"} 2
`+none("dmutex_wait_seconds", "busy", "canceled", "deadlock", "failed")), "dmutex_hold_seconds", "dmutex_wait_seconds"))
	})
}

// The names of locks become labels only through Options.Lock.
func TestLockLabel(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{Lock: func(name string) string {
		before, _, _ := strings.Cut(name, "/")
		return before
	}})
	require.NoError(t, err)
	plain, err := dmutexprom.NewHistograms(dmutexprom.Options{})
	require.NoError(t, err)
	both := &node.Observer{
		Wait: func(w node.Event) { h.Observer().Wait(w); plain.Observer().Wait(w) },
		Hold: func(v node.Event) { h.Observer().Hold(v); plain.Observer().Hold(v) },
	}
	observed(t, both, func(t *testing.T, one, _ *node.Node) {
		for i := range 100 {
			require.NoError(t, acquire(t, one, fmt.Sprint("invoices/", i)).Release())
			require.NoError(t, acquire(t, one, fmt.Sprint("orders/", i)).Release())
		}
		require.Equal(t, 2, testutil.CollectAndCount(h, "dmutex_hold_seconds"))
		require.Equal(t, 2, testutil.CollectAndCount(plain, "dmutex_hold_seconds"))
		problems, err := testutil.CollectAndLint(h)
		require.NoError(t, err)
		require.Empty(t, problems)
	})
}

// Every outcome has its series before it first occurs.
func TestOutcomes(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
	require.NoError(t, err)
	all := testutil.CollectAndCount(h)
	for _, outcome := range []string{"granted", "busy", "canceled", "deadline", "deadlock", "failed"} {
		h.Observer().Wait(node.Event{Outcome: outcome})
	}
	for _, outcome := range []string{"released", "lost"} {
		h.Observer().Hold(node.Event{Outcome: outcome})
	}
	require.Equal(t, all, testutil.CollectAndCount(h))
}

// The name of a lock may have any bytes, but a label must be UTF-8.
func TestLockLabelNoUTF8(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{Lock: func(name string) string { return name }})
	require.NoError(t, err)
	observed(t, h.Observer(), func(t *testing.T, one, _ *node.Node) {
		require.NoError(t, acquire(t, one, "invoices/\xff").Release())
		reg := prometheus.NewPedanticRegistry()
		reg.MustRegister(h)
		families, err := reg.Gather()
		require.NoError(t, err)
		require.Equal(t, "invoices/\uFFFD", families[0].GetMetric()[0].GetLabel()[0].GetValue())
	})
}

func TestBuckets(t *testing.T) {
	for _, buckets := range [][]float64{{1, 1}, {2, 1}, {1, math.NaN()}} {
		_, err := dmutexprom.NewHistograms(dmutexprom.Options{Buckets: buckets})
		require.ErrorIs(t, err, dmutex.ErrMisuse)
	}
}

func TestCollector(t *testing.T) {
	observed(t, nil, func(t *testing.T, one, two *node.Node) {
		c := dmutexprom.NewCollector(one)
		require.NoError(t, acquire(t, one, "x").Release())
		acquire(t, one, "x")
		acquire(t, two, "y")
		for range 2 {
			go func() { _, _ = one.Mutex("y").Acquire(t.Context()) }()
		}
		time.Sleep(7 * time.Second)
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP dmutex_deadlock_probes_total Messages sent or forwarded to find deadlocks.
# TYPE dmutex_deadlock_probes_total counter
dmutex_deadlock_probes_total 0
# HELP dmutex_deadlocks_total Waits at this node that were ended to break a deadlock.
# TYPE dmutex_deadlocks_total counter
dmutex_deadlocks_total 0
# HELP dmutex_granted_total Locks granted to this node.
# TYPE dmutex_granted_total counter
dmutex_granted_total 2
# HELP dmutex_locks Locks that this node holds (held) or waits for (waiting).
# TYPE dmutex_locks gauge
dmutex_locks{state="held"} 1
dmutex_locks{state="waiting"} 1
# HELP dmutex_messages_sent_total Messages of the algorithm that were sent. Their sum over all nodes, divided by that of the locks granted, is the messages per entry.
# TYPE dmutex_messages_sent_total counter
dmutex_messages_sent_total{kind="FAILED"} 0
dmutex_messages_sent_total{kind="GRANT"} 0
dmutex_messages_sent_total{kind="INQUIRE"} 0
dmutex_messages_sent_total{kind="RELEASE"} 0
dmutex_messages_sent_total{kind="REPLY"} 1
dmutex_messages_sent_total{kind="REQUEST"} 3
dmutex_messages_sent_total{kind="SHARE"} 0
dmutex_messages_sent_total{kind="TOKEN"} 0
dmutex_messages_sent_total{kind="YIELD"} 0
# HELP dmutex_oldest_timestamp_seconds When the longest present hold (held) or wait (waiting) began; absent if there is none.
# TYPE dmutex_oldest_timestamp_seconds gauge
dmutex_oldest_timestamp_seconds{state="held"} 9.466848e+08
dmutex_oldest_timestamp_seconds{state="waiting"} 9.466848e+08
# HELP dmutex_peer_backlog_bytes Bytes that the peer has not acknowledged: above 2 MiB, Acquire returns ErrOverflow.
# TYPE dmutex_peer_backlog_bytes gauge
dmutex_peer_backlog_bytes{peer="web-2"} 0
# HELP dmutex_peer_heard_timestamp_seconds When a frame of the peer last arrived; absent before the first. An idle group is silent, so this is not a failure detector.
# TYPE dmutex_peer_heard_timestamp_seconds gauge
dmutex_peer_heard_timestamp_seconds{peer="web-2"} 9.4668480002e+08
# HELP dmutex_peer_in_view Whether the peer's present process is a member of this node's view.
# TYPE dmutex_peer_in_view gauge
dmutex_peer_in_view{peer="web-2"} 1
# HELP dmutex_peer_missing Whether this node waits for the peer before a view can act.
# TYPE dmutex_peer_missing gauge
dmutex_peer_missing{peer="web-2"} 0
# HELP dmutex_peer_resent_frames_total Frames that were sent to the peer again.
# TYPE dmutex_peer_resent_frames_total counter
dmutex_peer_resent_frames_total{peer="web-2"} 0
# HELP dmutex_up Whether the node is in a view that acts, so that it can grant locks.
# TYPE dmutex_up gauge
dmutex_up 1
# HELP dmutex_view_changes_total Views that have begun to act here.
# TYPE dmutex_view_changes_total counter
dmutex_view_changes_total 1
# HELP dmutex_view_members Members of the view that is installed.
# TYPE dmutex_view_members gauge
dmutex_view_members 2
# HELP dmutex_waiters Goroutines that wait for a lock.
# TYPE dmutex_waiters gauge
dmutex_waiters 2
`), "dmutex_deadlock_probes_total", "dmutex_deadlocks_total", "dmutex_granted_total", "dmutex_locks", "dmutex_messages_sent_total", "dmutex_oldest_timestamp_seconds", "dmutex_peer_backlog_bytes",
			"dmutex_down_timestamp_seconds", "dmutex_view_changes_total", "dmutex_view_members",
			"dmutex_peer_in_view", "dmutex_peer_missing", "dmutex_peer_resent_frames_total", "dmutex_peer_heard_timestamp_seconds", "dmutex_up", "dmutex_waiters"))
		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
		require.Equal(t, 1, testutil.CollectAndCount(c, "dmutex_view_epoch"))
		require.NoError(t, two.Close(t.Context()))
		time.Sleep(3 * time.Second)
		views := func(up, change, members, inView, missing int) string {
			return fmt.Sprintf(`
# HELP dmutex_peer_in_view Whether the peer's present process is a member of this node's view.
# TYPE dmutex_peer_in_view gauge
dmutex_peer_in_view{peer="web-2"} %d
# HELP dmutex_peer_missing Whether this node waits for the peer before a view can act.
# TYPE dmutex_peer_missing gauge
dmutex_peer_missing{peer="web-2"} %d
# HELP dmutex_up Whether the node is in a view that acts, so that it can grant locks.
# TYPE dmutex_up gauge
dmutex_up %d
# HELP dmutex_view_changes_total Views that have begun to act here.
# TYPE dmutex_view_changes_total counter
dmutex_view_changes_total %d
# HELP dmutex_view_members Members of the view that is installed.
# TYPE dmutex_view_members gauge
dmutex_view_members %d
`, inView, missing, up, change, members)
		}
		names := []string{"dmutex_peer_in_view", "dmutex_peer_missing", "dmutex_up", "dmutex_view_changes_total", "dmutex_view_members"}
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(views(1, 2, 1, 0, 0)), names...))
		require.Equal(t, 1, testutil.CollectAndCount(c, "dmutex_peer_round_trip_seconds"))
		require.NoError(t, one.Close(t.Context()))
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(views(0, 2, 1, 0, 0)), names...))
	})
}

// A node that waits for a member is not up. It reports the member and how long it has
// waited.
func TestNotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1, 2}, net.Link(1), node.Config{Algorithm: ricart.New})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		require.NoError(t, testutil.CollectAndCompare(dmutexprom.NewCollector(n), strings.NewReader(`
# HELP dmutex_down_timestamp_seconds Since when no view has acted here; absent while one acts.
# TYPE dmutex_down_timestamp_seconds gauge
dmutex_down_timestamp_seconds 9.466848e+08
# HELP dmutex_peer_missing Whether this node waits for the peer before a view can act.
# TYPE dmutex_peer_missing gauge
dmutex_peer_missing{peer="node 2"} 1
# HELP dmutex_up Whether the node is in a view that acts, so that it can grant locks.
# TYPE dmutex_up gauge
dmutex_up 0
`), "dmutex_down_timestamp_seconds", "dmutex_peer_missing", "dmutex_up"))
		require.NoError(t, n.Close(t.Context()))
	})
}

// The time that a view change takes is measured.
func TestViewChange(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{Buckets: []float64{10}, Lock: func(string) string { return "all" }})
	require.NoError(t, err)
	observed(t, h.Observer(), func(t *testing.T, one, two *node.Node) {
		time.Sleep(5 * time.Second)
		require.NoError(t, two.Close(t.Context()))
		time.Sleep(5 * time.Second)
		require.NoError(t, testutil.CollectAndCompare(h, strings.NewReader(`
# HELP dmutex_view_change_seconds How long nothing was granted here while the group changed.
# TYPE dmutex_view_change_seconds histogram
dmutex_view_change_seconds_bucket{le="10"} 2
dmutex_view_change_seconds_bucket{le="+Inf"} 2
dmutex_view_change_seconds_sum 0
dmutex_view_change_seconds_count 2
`), "dmutex_view_change_seconds"))
	})
}

// Histograms and collectors of two nodes can be registered side by side.
func TestRegister(t *testing.T) {
	observed(t, nil, func(t *testing.T, one, two *node.Node) {
		reg := prometheus.NewPedanticRegistry()
		for name, n := range map[string]*node.Node{"one": one, "two": two} {
			h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
			require.NoError(t, err)
			prometheus.WrapRegistererWith(prometheus.Labels{"node": name}, reg).MustRegister(h, dmutexprom.NewCollector(n))
		}
		_, err := reg.Gather()
		require.NoError(t, err)
	})
}

// A node with a store reports its lease.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), new(store.Memory), net.Link(dmutex.None), node.Config{Algorithm: ricart.New, Lease: 16 * time.Second})
		require.NoError(t, err)
		c := dmutexprom.NewCollector(n)
		time.Sleep(time.Second)
		require.NoError(t, testutil.CollectAndCompare(c, strings.NewReader(`
# HELP dmutex_exclusions_total How often this process was excluded. Only in the lease mode.
# TYPE dmutex_exclusions_total counter
dmutex_exclusions_total 0
# HELP dmutex_lease_late Whether the lease is late to be renewed. Only in the lease mode.
# TYPE dmutex_lease_late gauge
dmutex_lease_late 0
# HELP dmutex_lease_remaining_seconds Time until the lease ends unless it is renewed; 0 once it has ended. Only in the lease mode.
# TYPE dmutex_lease_remaining_seconds gauge
dmutex_lease_remaining_seconds 14
# HELP dmutex_locks_draining Locks that are waited for here and that a former member may hold. Only in the lease mode.
# TYPE dmutex_locks_draining gauge
dmutex_locks_draining 0
`), "dmutex_locks_draining", "dmutex_drain_timestamp_seconds", "dmutex_exclusions_total", "dmutex_lease_late", "dmutex_lease_remaining_seconds"))
		require.NoError(t, n.Close(t.Context()))
	})
}
