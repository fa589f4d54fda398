package dmutexotel

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
)

// Register makes the meter read the present state of a node. Each collection reads
// the state again and looks at all locks in use. Unregister the result before you
// close the node. The error is the meter's.
//
//	dmutex.up                       1 while the node is in a view that acts, so that it can grant locks; else 0
//	dmutex.down.timestamp       s   since when no view has acted here, absent while one acts
//	dmutex.view.epoch               epoch of the view that is installed
//	dmutex.view.members             how many members it has
//	dmutex.view.changes             views that have begun to act here
//	dmutex.lease.remaining      s   time until the lease ends unless it is renewed, 0 once it has ended; like the next two only in the lease mode
//	dmutex.lease.late               1 while the lease is late to be renewed
//	dmutex.exclusions               how often this process was excluded
//	dmutex.locks.draining           locks that are waited for here and that a former member may hold; like the next only in the lease mode
//	dmutex.drain.timestamp      s   when they go on at the latest, absent if there are none
//	dmutex.clients                  clients that this node serves; like the next two only in the lease mode
//	dmutex.client.locks             what they hold and wait for, by dmutex.state: held or waiting
//	dmutex.clients.refused          clients, and requests of clients, that Clients.Allow or a limit has refused
//	dmutex.granted                  locks granted to this node
//	dmutex.messages.sent            of the algorithm, by dmutex.kind; the sum over all nodes, divided by that of dmutex.granted, is the messages per entry
//	dmutex.messages.received
//	dmutex.refused                  frames and messages that no correct peer sends
//	dmutex.deadlocks                waits at this node that ended in ErrDeadlock
//	dmutex.deadlock.probes          messages sent or forwarded to find deadlocks
//	dmutex.locks                    by dmutex.state: held or waiting, at this node
//	dmutex.waiters                  goroutines that wait for a lock
//	dmutex.oldest.timestamp     s   when the longest present hold and wait began, by dmutex.state: held or waiting; absent if there is none
//	dmutex.peer.in_view             by dmutex.peer: 1 if its present process is a member of this node's view
//	dmutex.peer.missing             1 if this node waits for it before a view can act
//	dmutex.peer.heard.timestamp s   when a frame of it last arrived, absent before the first; an idle group is silent, so this is not a failure detector
//	dmutex.peer.unacked_messages    that it has not acknowledged
//	dmutex.peer.backlog        By   their size: above 2 MiB, Acquire returns ErrOverflow
//	dmutex.peer.resent_frames       that were sent to it again
//	dmutex.peer.repeated_frames     that were received from it again
//	dmutex.peer.round_trip      s   absent until measured
//
// A timestamp is in seconds since 1970. The names become those of package dmutexprom where a
// Prometheus exporter writes a dot as _ and adds the unit, and _total to counters.
//
// A peer's attribute is its name, node.Config.Name, or its number while the name is not known.
// docs/operating.md says what to alert on.
func Register(meter metric.Meter, n *node.Node, o Options) (metric.Registration, error) {
	m := meters{meter: meter}
	var (
		up       = m.gauge("dmutex.up", "Whether the node is in a view that acts, so that it can grant locks.")
		down     = m.seconds("dmutex.down.timestamp", "Since when no view has acted here.")
		epoch    = m.gauge("dmutex.view.epoch", "Epoch of the view that is installed.")
		members  = m.gauge("dmutex.view.members", "Members of the view that is installed.")
		changes  = m.counter("dmutex.view.changes", "{view}", "Views that have begun to act here.")
		lease    = m.seconds("dmutex.lease.remaining", "Time until the lease ends unless it is renewed; 0 once it has ended.")
		late     = m.gauge("dmutex.lease.late", "Whether the lease is late to be renewed.")
		excluded = m.counter("dmutex.exclusions", "{exclusion}", "How often this process was excluded.")
		draining = m.sum("dmutex.locks.draining", "{lock}", "Locks that are waited for here and that a former member may hold.")
		drain    = m.seconds("dmutex.drain.timestamp", "When the locks that former members may hold go on at the latest.")
		clients  = m.sum("dmutex.clients", "{client}", "Clients that this node serves.")
		lent     = m.sum("dmutex.client.locks", "{lock}", "Locks that clients of this node hold or wait for.")
		rejected = m.counter("dmutex.clients.refused", "{refusal}", "Clients and requests of clients that were not allowed, or too many.")
		granted  = m.counter("dmutex.granted", "{grant}", "Locks granted to this node.")
		sent     = m.counter("dmutex.messages.sent", "{message}", "Messages of the algorithm that were sent.")
		received = m.counter("dmutex.messages.received", "{message}", "Messages of the algorithm that were received.")
		refused  = m.counter("dmutex.refused", "{message}", "Frames and messages that no correct peer sends.")
		victims  = m.counter("dmutex.deadlocks", "{wait}", "Waits at this node that were ended to break a deadlock.")
		probes   = m.counter("dmutex.deadlock.probes", "{message}", "Messages sent or forwarded to find deadlocks.")
		locks    = m.sum("dmutex.locks", "{lock}", "Locks in use at this node.")
		waiters  = m.sum("dmutex.waiters", "{goroutine}", "Goroutines that wait for a lock.")
		oldest   = m.seconds("dmutex.oldest.timestamp", "When the longest present hold or wait began.")
		inView   = m.gauge("dmutex.peer.in_view", "Whether the peer's present process is a member of this node's view.")
		missing  = m.gauge("dmutex.peer.missing", "Whether this node waits for the peer before a view can act.")
		heard    = m.seconds("dmutex.peer.heard.timestamp", "When a frame of the peer last arrived. An idle group is silent, so this is not a failure detector.")
		unacked  = m.sum("dmutex.peer.unacked_messages", "{message}", "Messages that the peer has not acknowledged.")
		backlog  = m.sum("dmutex.peer.backlog", "By", "Bytes that the peer has not acknowledged.")
		resent   = m.counter("dmutex.peer.resent_frames", "{frame}", "Frames that were sent again.")
		repeated = m.counter("dmutex.peer.repeated_frames", "{frame}", "Frames that were received again.")
		trip     = m.seconds("dmutex.peer.round_trip", "Smoothed time from a frame to its acknowledgement.")
	)
	if err := errors.Join(m.errs...); err != nil {
		return nil, err
	}
	with := func(key, value string) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(o.Attributes), attribute.String(key, value))...))
	}
	// NewSet sorts what it is given.
	plain := metric.WithAttributeSet(attribute.NewSet(slices.Clone(o.Attributes)...))
	held, waiting := with("dmutex.state", "held"), with("dmutex.state", "waiting")
	var kinds [dmutex.Kinds]metric.MeasurementOption
	for k := range kinds {
		kinds[k] = with("dmutex.kind", dmutex.Kind(k).String())
	}
	return meter.RegisterCallback(func(_ context.Context, obs metric.Observer) error {
		st, now := n.Status(), time.Now()
		at := func(i metric.Float64Observable, when time.Time, with metric.MeasurementOption) {
			obs.ObserveFloat64(i, float64(when.UnixMicro())/1e6, with)
		}
		obs.ObserveInt64(up, truth(st.Err == nil && st.View.Acts), plain)
		if !st.View.Acts {
			at(down, now.Add(-st.View.Age), plain)
		}
		obs.ObserveInt64(epoch, int64(st.View.Epoch), plain)
		obs.ObserveInt64(members, int64(len(st.View.Members)), plain)
		obs.ObserveInt64(changes, int64(st.View.Changes), plain)
		if l := st.Lease; l != nil {
			obs.ObserveFloat64(lease, l.Remains.Seconds(), plain)
			obs.ObserveInt64(late, truth(l.State == "late"), plain)
			obs.ObserveInt64(excluded, int64(l.Exclusions), plain)
			obs.ObserveInt64(draining, int64(st.Draining), plain)
			if st.Draining > 0 {
				at(drain, now.Add(st.Drains), plain)
			}
			var holds, waits int
			for _, c := range st.Clients {
				holds, waits = holds+len(c.Holds), waits+len(c.WaitsFor)
			}
			obs.ObserveInt64(clients, int64(len(st.Clients)), plain)
			obs.ObserveInt64(lent, int64(holds), held)
			obs.ObserveInt64(lent, int64(waits), waiting)
			obs.ObserveInt64(rejected, int64(st.ClientsRefused), plain)
		}
		obs.ObserveInt64(granted, int64(st.Granted), plain)
		for k := 1; k < dmutex.Kinds; k++ {
			obs.ObserveInt64(sent, int64(st.Sent[k]), kinds[k])
			obs.ObserveInt64(received, int64(st.Received[k]), kinds[k])
		}
		obs.ObserveInt64(refused, int64(st.Refused), plain)
		obs.ObserveInt64(victims, int64(st.Deadlocks), plain)
		obs.ObserveInt64(probes, int64(st.Probes), plain)
		obs.ObserveInt64(locks, int64(st.Held), held)
		obs.ObserveInt64(locks, int64(st.Waiting), waiting)
		obs.ObserveInt64(waiters, int64(st.Waiters), plain)
		if st.Held > 0 {
			at(oldest, now.Add(-st.OldestHold), held)
		}
		if st.Waiting > 0 {
			at(oldest, now.Add(-st.OldestWait), waiting)
		}
		for _, p := range st.Peers {
			peer := with("dmutex.peer", cmp.Or(p.Name, p.ID.String()))
			obs.ObserveInt64(inView, truth(p.InView), peer)
			obs.ObserveInt64(missing, truth(slices.Contains(st.View.Missing, p.ID)), peer)
			if p.Silent > 0 {
				at(heard, now.Add(-p.Silent), peer)
			}
			obs.ObserveInt64(unacked, int64(p.Unacked), peer)
			obs.ObserveInt64(backlog, int64(p.Backlog), peer)
			obs.ObserveInt64(resent, int64(p.Resent), peer)
			obs.ObserveInt64(repeated, int64(p.Repeated), peer)
			if p.RoundTrip > 0 {
				obs.ObserveFloat64(trip, p.RoundTrip.Seconds(), peer)
			}
		}
		return nil
	}, m.all...)
}

// meters makes instruments and remembers them for the callback.
type meters struct {
	meter metric.Meter
	all   []metric.Observable
	errs  []error
}

func add[T metric.Observable](m *meters, instrument T, err error) T {
	m.all, m.errs = append(m.all, instrument), append(m.errs, err)
	return instrument
}

func (m *meters) counter(name, unit, description string) metric.Int64ObservableCounter {
	i, err := m.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return add(m, i, err)
}

// sum is of what can be added up over nodes.
func (m *meters) sum(name, unit, description string) metric.Int64ObservableUpDownCounter {
	i, err := m.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	return add(m, i, err)
}

func (m *meters) gauge(name, description string) metric.Int64ObservableGauge {
	i, err := m.meter.Int64ObservableGauge(name, metric.WithDescription(description))
	return add(m, i, err)
}

func (m *meters) seconds(name, description string) metric.Float64ObservableGauge {
	i, err := m.meter.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(description))
	return add(m, i, err)
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
