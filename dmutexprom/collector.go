package dmutexprom

import (
	"cmp"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

// NewCollector returns the metrics of the present state of a node. Each scrape reads
// the state again and looks at all locks in use.
//
//	dmutex_up                                  1 while the node is in a view that acts, so that it can grant locks; else 0
//	dmutex_down_timestamp_seconds              since when no view has acted here, absent while one acts
//	dmutex_view_epoch                          epoch of the view that is installed
//	dmutex_view_members                        how many members it has
//	dmutex_view_changes_total                  views that have begun to act here
//	dmutex_lease_remaining_seconds             time until the lease ends unless it is renewed, 0 once it has ended; like the next two only in the lease mode
//	dmutex_lease_late                          1 while the lease is late to be renewed
//	dmutex_exclusions_total                    how often this process was excluded
//	dmutex_locks_draining                      locks that are waited for here and that a former member may hold; like the next only in the lease mode
//	dmutex_drain_timestamp_seconds             when they go on at the latest, absent if there are none
//	dmutex_clients                             clients that this node serves; like the next two only in the lease mode
//	dmutex_client_locks{state}                 what they hold (held) and wait for (waiting)
//	dmutex_clients_refused_total               clients, and requests of clients, that Clients.Allow or a limit has refused
//	dmutex_granted_total                       locks granted to this node
//	dmutex_messages_sent_total{kind}           of the algorithm; the sum over all nodes, divided by that of dmutex_granted_total, is the messages per entry
//	dmutex_messages_received_total{kind}
//	dmutex_refused_total                       frames and messages that no correct peer sends
//	dmutex_deadlocks_total                     waits at this node that ended in ErrDeadlock
//	dmutex_deadlock_probes_total               messages sent or forwarded to find deadlocks
//	dmutex_locks{state}                        held or waiting, at this node
//	dmutex_waiters                             goroutines that wait for a lock
//	dmutex_oldest_timestamp_seconds{state}     when the longest present hold (held) and wait (waiting) began, absent if there is none
//	dmutex_peer_in_view{peer}                  1 if its present process is a member of this node's view
//	dmutex_peer_missing{peer}                  1 if this node waits for it before a view can act
//	dmutex_peer_heard_timestamp_seconds{peer}  when a frame of it last arrived, absent before the first; an idle group is silent, so this is not a failure detector
//	dmutex_peer_unacked_messages{peer}
//	dmutex_peer_backlog_bytes{peer}            above 2 MiB, Acquire returns ErrOverflow
//	dmutex_peer_resent_frames_total{peer}
//	dmutex_peer_repeated_frames_total{peer}
//	dmutex_peer_round_trip_seconds{peer}       absent until measured
//
// A timestamp is in seconds since 1970: alert on time() minus it.
//
// A peer's label is its name, node.Config.Name, or its number while the name is not known.
// docs/operating.md says what to alert on, and alerts.yaml has the rules.
func NewCollector(n *node.Node) prometheus.Collector { return &collector{n} }

type collector struct{ node *node.Node }

var descs []*prometheus.Desc // all of these

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("dmutex_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

var (
	up        = desc("up", "Whether the node is in a view that acts, so that it can grant locks.")
	down      = desc("down_timestamp_seconds", "Since when no view has acted here.")
	epoch     = desc("view_epoch", "Epoch of the view that is installed.")
	members   = desc("view_members", "Members of the view that is installed.")
	changes   = desc("view_changes_total", "Views that have begun to act here.")
	leaseLeft = desc("lease_remaining_seconds", "Time until the lease ends unless it is renewed; 0 once it has ended.")
	leaseLate = desc("lease_late", "Whether the lease is late to be renewed.")
	excluded  = desc("exclusions_total", "How often this process was excluded.")
	draining  = desc("locks_draining", "Locks that are waited for here and that a former member may hold.")
	drain     = desc("drain_timestamp_seconds", "When the locks that former members may hold go on at the latest.")
	clients   = desc("clients", "Clients that this node serves.")
	lent      = desc("client_locks", "Locks that clients of this node hold or wait for.", "state")
	rejected  = desc("clients_refused_total", "Clients and requests of clients that were not allowed, or too many.")
	granted   = desc("granted_total", "Locks granted to this node.")
	sent      = desc("messages_sent_total", "Messages of the algorithm that were sent.", "kind")
	received  = desc("messages_received_total", "Messages of the algorithm that were received.", "kind")
	refused   = desc("refused_total", "Frames and messages that no correct peer sends.")
	deadlocks = desc("deadlocks_total", "Waits at this node that were ended to break a deadlock.")
	probes    = desc("deadlock_probes_total", "Messages sent or forwarded to find deadlocks.")
	locks     = desc("locks", "Locks in use at this node.", "state")
	waiters   = desc("waiters", "Goroutines that wait for a lock.")
	oldest    = desc("oldest_timestamp_seconds", "When the longest present hold or wait began.", "state")
	inView    = desc("peer_in_view", "Whether the peer's present process is a member of this node's view.", "peer")
	missing   = desc("peer_missing", "Whether this node waits for the peer before a view can act.", "peer")
	heard     = desc("peer_heard_timestamp_seconds", "When a frame of the peer last arrived. An idle group is silent, so this is not a failure detector.", "peer")
	unacked   = desc("peer_unacked_messages", "Messages that the peer has not acknowledged.", "peer")
	backlog   = desc("peer_backlog_bytes", "Bytes that the peer has not acknowledged.", "peer")
	resent    = desc("peer_resent_frames_total", "Frames that were sent again.", "peer")
	repeated  = desc("peer_repeated_frames_total", "Frames that were received again.", "peer")
	roundTrip = desc("peer_round_trip_seconds", "Smoothed time from a frame to its acknowledgement.", "peer")
)

// Describe implements [prometheus.Collector].
func (*collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range descs {
		c <- d
	}
}

// Collect implements [prometheus.Collector].
func (col *collector) Collect(c chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	st, now := col.node.Status(), time.Now()
	at := func(d *prometheus.Desc, when time.Time, labels ...string) {
		gauge(d, float64(when.UnixMicro())/1e6, labels...)
	}
	gauge(up, truth(st.Err == nil && st.View.Acts))
	if !st.View.Acts {
		at(down, now.Add(-st.View.Age))
	}
	gauge(epoch, float64(st.View.Epoch))
	gauge(members, float64(len(st.View.Members)))
	count(changes, st.View.Changes)
	if l := st.Lease; l != nil {
		gauge(leaseLeft, l.Remains.Seconds())
		gauge(leaseLate, truth(l.State == "late"))
		count(excluded, uint64(l.Exclusions))
		gauge(draining, float64(st.Draining))
		if st.Draining > 0 {
			at(drain, now.Add(st.Drains))
		}
		var holds, waits int
		for _, c := range st.Clients {
			holds, waits = holds+len(c.Holds), waits+len(c.WaitsFor)
		}
		gauge(clients, float64(len(st.Clients)))
		gauge(lent, float64(holds), "held")
		gauge(lent, float64(waits), "waiting")
		count(rejected, st.ClientsRefused)
	}
	count(granted, st.Granted)
	for k := dmutex.Kind(1); int(k) < dmutex.Kinds; k++ {
		count(sent, st.Sent[k], k.String())
		count(received, st.Received[k], k.String())
	}
	count(refused, st.Refused)
	count(deadlocks, st.Deadlocks)
	count(probes, st.Probes)
	gauge(locks, float64(st.Held), "held")
	gauge(locks, float64(st.Waiting), "waiting")
	gauge(waiters, float64(st.Waiters))
	if st.Held > 0 {
		at(oldest, now.Add(-st.OldestHold), "held")
	}
	if st.Waiting > 0 {
		at(oldest, now.Add(-st.OldestWait), "waiting")
	}
	for _, p := range st.Peers {
		id := cmp.Or(p.Name, p.ID.String())
		gauge(inView, truth(p.InView), id)
		gauge(missing, truth(slices.Contains(st.View.Missing, p.ID)), id)
		if p.Silent > 0 {
			at(heard, now.Add(-p.Silent), id)
		}
		gauge(unacked, float64(p.Unacked), id)
		gauge(backlog, float64(p.Backlog), id)
		count(resent, p.Resent, id)
		count(repeated, p.Repeated, id)
		if p.RoundTrip > 0 {
			gauge(roundTrip, p.RoundTrip.Seconds(), id)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
