package dmutexotel

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
)

// Register makes the meter read the present state of a node. Each collection reads
// the state again and looks at all locks in use. Unregister the result before you
// close the node. The error is the meter's. docs/metrics.md lists the metrics:
//
//	dmutex.up, dmutex.down.timestamp                whether locks are granted here
//	dmutex.locks, dmutex.waiters, dmutex.oldest...  who holds and who waits
//	dmutex.lease..., dmutex.locks.draining          the lease, and what a dead member still keeps
//	dmutex.clients, dmutex.client.locks             clients of this node, and their locks
//	dmutex.peer...                                  each of the other members
//
// A timestamp is in seconds since 1970. The names become those of package dmutexprom where a
// Prometheus exporter writes a dot as _ and adds the unit, and _total to counters.
//
// A peer's attribute, dmutex.peer, is its name, node.Config.Name, or its number, such as node 3, while
// the name is not known. docs/operating.md says what to alert on.
func Register(meter metric.Meter, n *node.Node, o Options) (metric.Registration, error) {
	return register(meter, metrics.Node(n), o)
}

// RegisterClient makes the meter read the present state of a client: dmutex.session... in
// docs/metrics.md. Unregister the result before you close the client.
func RegisterClient(meter metric.Meter, c *client.Client, o Options) (metric.Registration, error) {
	return register(meter, metrics.Client(c), o)
}

func register(meter metric.Meter, s metrics.Source, o Options) (metric.Registration, error) {
	instruments := make(map[*metrics.Metric]metric.Observable)
	var all []metric.Observable
	var errs []error
	for _, m := range s.Metrics {
		i, err := instrument(meter, m)
		instruments[m], all, errs = i, append(all, i), append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return meter.RegisterCallback(func(_ context.Context, obs metric.Observer) error {
		s.Read(func(m *metrics.Metric, value float64, label ...string) {
			list := slices.Clone(o.Attributes) // NewSet sorts what it is given
			if m.Label != "" {
				list = append(list, attribute.String("dmutex."+m.Label, label[0]))
			}
			with := metric.WithAttributeSet(attribute.NewSet(list...))
			switch i := instruments[m].(type) {
			case metric.Float64Observable:
				obs.ObserveFloat64(i, value, with)
			case metric.Int64Observable:
				obs.ObserveInt64(i, int64(value), with)
			}
		})
		return nil
	}, all...)
}

func instrument(meter metric.Meter, m *metrics.Metric) (metric.Observable, error) {
	name, unit, help := m.OTel(), metric.WithUnit(m.Unit), metric.WithDescription(m.Help)
	switch {
	case m.Kind == metrics.Counter:
		return meter.Int64ObservableCounter(name, unit, help)
	case m.Kind == metrics.Sum:
		return meter.Int64ObservableUpDownCounter(name, unit, help)
	case m.Unit == "s":
		return meter.Float64ObservableGauge(name, unit, help)
	default:
		return meter.Int64ObservableGauge(name, unit, help)
	}
}
