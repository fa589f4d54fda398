package dmutexotel

import (
	"cmp"
	"context"
	"errors"
	"slices"

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
//	dmutex.down.duration        s   time for which dmutex.up has been 0 because no view acts; 0 while one acts
//	dmutex.view.epoch               epoch of the view that is installed
//	dmutex.view.members             how many members it has
//	dmutex.view.changes             views that have begun to act here
//	dmutex.lease.duration       s   time until the lease ends unless it is renewed, 0 once it has ended; like the next two only in the lease mode
//	dmutex.lease.late               1 while the lease is late to be renewed
//	dmutex.exclusions               how often this process was excluded
//	dmutex.locks.draining           locks that are waited for here and that a former member may hold; like the next only in the lease mode
//	dmutex.drain.duration       s   time until they go on at the latest; 0 if there are none
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
//	dmutex.oldest.duration      s   the longest present hold and wait, by dmutex.state: held or waiting
//	dmutex.peer.in_view             by dmutex.peer: 1 if its present process is a member of this node's view
//	dmutex.peer.missing             1 if this node waits for it before a view can act
//	dmutex.peer.silent          s   time since a frame of it arrived, absent before the first; an idle group is silent, so this is not a failure detector
//	dmutex.peer.unacked             messages that it has not acknowledged
//	dmutex.peer.backlog        By   their size: above 2 MiB, Acquire returns ErrOverflow
//	dmutex.peer.resent              frames that were sent to it again
//	dmutex.peer.repeated            frames that were received from it again
//	dmutex.peer.round_trip      s   absent until measured
//
// A peer's attribute is its name, node.Config.Name, or its number while the name is not known.
// docs/operating.md says what to alert on, with the names of package dmutexprom.
func Register(meter metric.Meter, n *node.Node, o Options) (metric.Registration, error) {
	m := meters{meter: meter}
	var (
		up       = m.gauge("dmutex.up", "Whether the node is in a view that acts, so that it can grant locks.")
		down     = m.seconds("dmutex.down.duration", "Time for which no view has acted here; 0 while one acts.")
		epoch    = m.gauge("dmutex.view.epoch", "Epoch of the view that is installed.")
		members  = m.gauge("dmutex.view.members", "Members of the view that is installed.")
		changes  = m.counter("dmutex.view.changes", "{view}", "Views that have begun to act here.")
		lease    = m.seconds("dmutex.lease.duration", "Time until the lease ends unless it is renewed; 0 once it has ended.")
		late     = m.gauge("dmutex.lease.late", "Whether the lease is late to be renewed.")
		excluded = m.counter("dmutex.exclusions", "{exclusion}", "How often this process was excluded.")
		draining = m.sum("dmutex.locks.draining", "{lock}", "Locks that are waited for here and that a former member may hold.")
		drain    = m.seconds("dmutex.drain.duration", "Time until the locks that former members may hold go on at the latest; 0 if none is waited for.")
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
		oldest   = m.seconds("dmutex.oldest.duration", "Time for which the oldest lock has been held or waited for.")
		inView   = m.gauge("dmutex.peer.in_view", "Whether the peer's present process is a member of this node's view.")
		missing  = m.gauge("dmutex.peer.missing", "Whether this node waits for the peer before a view can act.")
		silent   = m.seconds("dmutex.peer.silent", "Time since a frame of the peer arrived. An idle group is silent, so this is not a failure detector.")
		unacked  = m.sum("dmutex.peer.unacked", "{message}", "Messages that the peer has not acknowledged.")
		backlog  = m.sum("dmutex.peer.backlog", "By", "Bytes that the peer has not acknowledged.")
		resent   = m.counter("dmutex.peer.resent", "{frame}", "Frames that were sent again.")
		repeated = m.counter("dmutex.peer.repeated", "{frame}", "Frames that were received again.")
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
		st := n.Status()
		obs.ObserveInt64(up, truth(st.Err == nil && st.View.Acts), plain)
		if st.View.Acts {
			obs.ObserveFloat64(down, 0, plain)
		} else {
			obs.ObserveFloat64(down, st.View.Age.Seconds(), plain)
		}
		obs.ObserveInt64(epoch, int64(st.View.Epoch), plain)
		obs.ObserveInt64(members, int64(len(st.View.Members)), plain)
		obs.ObserveInt64(changes, int64(st.View.Changes), plain)
		if l := st.Lease; l != nil {
			obs.ObserveFloat64(lease, l.Remains.Seconds(), plain)
			obs.ObserveInt64(late, truth(l.State == "late"), plain)
			obs.ObserveInt64(excluded, int64(l.Exclusions), plain)
			obs.ObserveInt64(draining, int64(st.Draining), plain)
			obs.ObserveFloat64(drain, st.Drains.Seconds(), plain)
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
		obs.ObserveFloat64(oldest, st.OldestHold.Seconds(), held)
		obs.ObserveFloat64(oldest, st.OldestWait.Seconds(), waiting)
		for _, p := range st.Peers {
			peer := with("dmutex.peer", cmp.Or(p.Name, p.ID.String()))
			obs.ObserveInt64(inView, truth(p.InView), peer)
			obs.ObserveInt64(missing, truth(slices.Contains(st.View.Missing, p.ID)), peer)
			if p.Silent > 0 {
				obs.ObserveFloat64(silent, p.Silent.Seconds(), peer)
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
