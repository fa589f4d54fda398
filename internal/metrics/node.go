package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

var (
	ofNode table

	up       = ofNode.add(Gauge, "up", "", "", "Whether the node is in a view that acts, so that it can grant locks.")
	down     = ofNode.add(Gauge, "down.timestamp", "s", "", "Since when no view has acted here; absent while one acts.")
	epoch    = ofNode.add(Gauge, "view.epoch", "", "", "Epoch of the view that is installed.")
	members  = ofNode.add(Gauge, "view.members", "", "", "Members of the view that is installed.")
	changes  = ofNode.add(Counter, "view.changes", "{view}", "", "Views that have begun to act here.")
	lease    = ofNode.add(Gauge, "lease.remaining", "s", "", "Time until the lease ends unless it is renewed; 0 once it has ended. Only in the lease mode.")
	late     = ofNode.add(Gauge, "lease.late", "", "", "Whether the lease is late to be renewed. Only in the lease mode.")
	excluded = ofNode.add(Counter, "exclusions", "{exclusion}", "", "How often this process was excluded. Only in the lease mode.")
	draining = ofNode.add(Sum, "locks.draining", "{lock}", "", "Locks that are waited for here and that a former member may hold. Only in the lease mode.")
	drain    = ofNode.add(Gauge, "drain.timestamp", "s", "", "When the locks that former members may hold go on at the latest; absent if there are none.")
	clients  = ofNode.add(Sum, "clients", "{client}", "", "Clients that this node serves. Only in the lease mode.")
	lent     = ofNode.add(Sum, "client.locks", "{lock}", "state", "Locks that clients of this node hold (held) or wait for (waiting). Only in the lease mode.")
	rejected = ofNode.add(Counter, "clients.refused", "{refusal}", "", "Clients and requests of clients that were not allowed, or too many, and connections of clients that failed before a hello, for example because a certificate has expired. Only in the lease mode.")
	gone     = ofNode.add(Counter, "clients.lost", "{session}", "", "Sessions of clients that ended although the client had not closed them: it was silent, or this node lost its lease. Only in the lease mode.")
	claimed  = ofNode.add(Counter, "clients.claims", "{request}", "", "Requests of clients that do not reach another member to take over a lock that they hold by that one. Until that member is gone they are refused, and made again. Only in the lease mode.")
	takeover = ofNode.add(Counter, "clients.moved", "{lock}", "", "Locks that this node has taken over for clients from members that were gone. Only in the lease mode.")
	granted  = ofNode.add(Counter, "granted", "{grant}", "", "Locks granted to this node.")
	sent     = ofNode.add(Counter, "messages.sent", "{message}", "kind", "Messages of the algorithm that were sent. Their sum over all nodes, divided by that of the locks granted, is the messages per entry.")
	received = ofNode.add(Counter, "messages.received", "{message}", "kind", "Messages of the algorithm that were received.")
	refused  = ofNode.add(Counter, "refused", "{message}", "", "Frames and messages that no correct peer sends.")
	victims  = ofNode.add(Counter, "deadlocks", "{wait}", "", "Waits at this node that were ended to break a deadlock.")
	probes   = ofNode.add(Counter, "deadlock.probes", "{message}", "", "Messages sent or forwarded to find deadlocks.")
	locks    = ofNode.add(Sum, "locks", "{lock}", "state", "Locks that this node holds (held) or waits for (waiting).")
	shared   = ofNode.add(Sum, "locks.shared", "{lock}", "", "Locks that this node holds and shares.")
	waiters  = ofNode.add(Sum, "waiters", "{goroutine}", "", "Goroutines that wait for a lock.")
	oldest   = ofNode.add(Gauge, "oldest.timestamp", "s", "state", "When the longest present hold (held) or wait (waiting) began; absent if there is none.")
	inView   = ofNode.add(Gauge, "peer.in_view", "", "peer", "Whether the peer's present process is a member of this node's view.")
	missing  = ofNode.add(Gauge, "peer.missing", "", "peer", "Whether this node waits for the peer before a view can act.")
	heard    = ofNode.add(Gauge, "peer.heard.timestamp", "s", "peer", "When a frame of the peer last arrived; absent before the first. An idle group is silent, so this is not a failure detector.")
	unacked  = ofNode.add(Sum, "peer.unacked_messages", "{message}", "peer", "Messages that the peer has not acknowledged.")
	backlog  = ofNode.add(Sum, "peer.backlog", "By", "peer", "Bytes that the peer has not acknowledged: above 2 MiB, Acquire returns ErrOverflow.")
	resent   = ofNode.add(Counter, "peer.resent_frames", "{frame}", "peer", "Frames that were sent to the peer again.")
	repeated = ofNode.add(Counter, "peer.repeated_frames", "{frame}", "peer", "Frames that were received from the peer again.")
	trip     = ofNode.add(Gauge, "peer.round_trip", "s", "peer", "Smoothed time from a frame to its acknowledgement; absent until measured.")
)

// Node returns the metrics of a node.
func Node(n *node.Node) Source {
	return Source{ofNode, func(see See) { readNode(n.Status(), time.Now(), see) }}
}

func readNode(st node.Status, now time.Time, see See) {
	ago := func(d time.Duration) float64 { return float64(now.Add(-d).UnixMicro()) / 1e6 }
	see(up, truth(st.Err == nil && st.View.Acts))
	if !st.View.Acts {
		see(down, ago(st.View.Age))
	}
	see(epoch, float64(st.View.Epoch))
	see(members, float64(len(st.View.Members)))
	see(changes, float64(st.View.Changes))
	if l := st.Lease; l != nil {
		see(lease, l.Remains.Seconds())
		see(late, truth(l.State == node.LeaseLate))
		see(excluded, float64(l.Exclusions))
		see(draining, float64(st.Draining))
		var holds, waits int
		for _, c := range st.Clients {
			holds, waits = holds+len(c.Holds), waits+len(c.WaitsFor)
		}
		see(clients, float64(len(st.Clients)))
		see(lent, float64(holds), "held")
		see(lent, float64(waits), "waiting")
		see(rejected, float64(st.ClientsRefused))
		see(gone, float64(st.ClientsLost))
		see(claimed, float64(st.ClientsClaims))
		see(takeover, float64(st.ClientsMoved))
	}
	if st.Draining > 0 {
		see(drain, ago(-st.Drains))
	}
	see(granted, float64(st.Granted))
	for k := dmutex.Kind(1); int(k) < dmutex.Kinds; k++ {
		see(sent, float64(st.Sent[k]), k.String())
		see(received, float64(st.Received[k]), k.String())
	}
	see(refused, float64(st.Refused))
	see(victims, float64(st.Deadlocks))
	see(probes, float64(st.Probes))
	see(locks, float64(st.Held), "held")
	see(locks, float64(st.Waiting), "waiting")
	see(shared, float64(st.Shared))
	see(waiters, float64(st.Waiters))
	if st.Held > 0 {
		see(oldest, ago(st.OldestHold), "held")
	}
	if st.Waiting > 0 {
		see(oldest, ago(st.OldestWait), "waiting")
	}
	for _, p := range st.Peers {
		name := cmp.Or(p.Name, "node "+p.ID.String())
		see(inView, truth(p.InView), name)
		see(missing, truth(slices.Contains(st.View.Missing, p.ID)), name)
		if p.Silent > 0 {
			see(heard, ago(p.Silent), name)
		}
		see(unacked, float64(p.Unacked), name)
		see(backlog, float64(p.Backlog), name)
		see(resent, float64(p.Resent), name)
		see(repeated, float64(p.Repeated), name)
		if p.RoundTrip > 0 {
			see(trip, p.RoundTrip.Seconds(), name)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
