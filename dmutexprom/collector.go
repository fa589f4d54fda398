package dmutexprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

// NewCollector returns the metrics of how a node stands, read anew at each scrape,
// which looks at all locks in use.
//
//	dmutex_up                                  1 while all members have met, none has broken the group, and the node is open
//	dmutex_granted_total
//	dmutex_messages_sent_total{kind}           of the algorithm: over all nodes, by dmutex_granted_total, the messages an entry
//	dmutex_messages_received_total{kind}
//	dmutex_refused_total                       frames and messages that no correct peer sends
//	dmutex_deadlocks_total                     waits at this node that ended in ErrDeadlock
//	dmutex_deadlock_probes_total               messages sent to find deadlocks, or sent on
//	dmutex_locks{state}                        held, waiting or stopped, at this node; a held one may be stopped too
//	dmutex_waiters                             goroutines that wait for a lock
//	dmutex_oldest_seconds{state}               the longest present hold (held) and wait (waiting)
//	dmutex_peer_ready{peer}                    1 if it was met, has met everybody and has not left
//	dmutex_peer_silent_seconds{peer}           since it was last heard of, absent until it was: an idle group is silent, this is no failure detector
//	dmutex_peer_unacked_messages{peer}
//	dmutex_peer_backlog_bytes{peer}            above 2 MiB, Acquire says ErrOverflow
//	dmutex_peer_resent_frames_total{peer}
//	dmutex_peer_repeated_frames_total{peer}
//	dmutex_peer_round_trip_seconds{peer}       absent until measured
//
// A peer that has left does not turn dmutex_up to 0, for locks that do not need it
// are still granted; with most algorithms there are none. So watch
// dmutex_peer_ready too.
func NewCollector(n *node.Node) prometheus.Collector { return &collector{n} }

type collector struct{ node *node.Node }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("dmutex_"+name, help, labels, nil)
}

var (
	up        = desc("up", "Whether all members have met, none has broken the group, and the node is open.")
	granted   = desc("granted_total", "Locks granted to this node.")
	sent      = desc("messages_sent_total", "Messages of the algorithm that were sent.", "kind")
	received  = desc("messages_received_total", "Messages of the algorithm that were received.", "kind")
	refused   = desc("refused_total", "Frames and messages that no correct peer sends.")
	deadlocks = desc("deadlocks_total", "Waits at this node that were ended to break a deadlock.")
	probes    = desc("deadlock_probes_total", "Messages sent to find deadlocks, or sent on.")
	locks     = desc("locks", "Locks in use at this node.", "state")
	waiters   = desc("waiters", "Goroutines that wait for a lock.")
	oldest    = desc("oldest_seconds", "For how long the oldest lock has been held or waited for.", "state")
	ready     = desc("peer_ready", "Whether the peer takes part.", "peer")
	silent    = desc("peer_silent_seconds", "Since the peer was last heard of. An idle group is silent: this is no failure detector.", "peer")
	unacked   = desc("peer_unacked_messages", "Messages that the peer has not acknowledged.", "peer")
	backlog   = desc("peer_backlog_bytes", "Bytes that the peer has not acknowledged.", "peer")
	resent    = desc("peer_resent_frames_total", "Frames that were sent again.", "peer")
	repeated  = desc("peer_repeated_frames_total", "Frames that were received again.", "peer")
	roundTrip = desc("peer_round_trip_seconds", "Smoothed time of a frame and its acknowledgement.", "peer")
)

// Describe implements [prometheus.Collector].
func (*collector) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		up, granted, sent, received, refused, deadlocks, probes, locks, waiters, oldest,
		ready, silent, unacked, backlog, resent, repeated, roundTrip,
	} {
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
	st, usage := col.node.Status(), col.node.Usage()
	gauge(up, truth(st.Err == nil && len(st.Unmet) == 0 && len(st.Unready) == 0))
	count(granted, st.Granted)
	for k := dmutex.Kind(1); int(k) < dmutex.Kinds; k++ {
		count(sent, st.Sent[k], k.String())
		count(received, st.Received[k], k.String())
	}
	count(refused, st.Refused)
	count(deadlocks, st.Deadlocks)
	count(probes, st.Probes)
	gauge(locks, float64(usage.Held), "held")
	gauge(locks, float64(usage.Waiting), "waiting")
	gauge(locks, float64(usage.Stopped), "stopped")
	gauge(waiters, float64(usage.Waiters))
	gauge(oldest, usage.OldestHold.Seconds(), "held")
	gauge(oldest, usage.OldestWait.Seconds(), "waiting")
	for _, p := range st.Peers {
		id := p.ID.String()
		gauge(ready, truth(p.Met && p.Ready && !p.Left), id)
		if p.Silent > 0 {
			gauge(silent, p.Silent.Seconds(), id)
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
