// Package dmutexotel exports the state and the events of a node as OpenTelemetry
// metrics.
//
//	meter := otel.Meter("github.com/dmutex/dmutex/metrics/otel")
//	cfg.Observer, err = dmutexotel.NewObserver(meter, dmutexotel.Options{})
//	...
//	n, err := node.Open(ctx, record, link, cfg)
//	...
//	registration, err := dmutexotel.Register(meter, n, dmutexotel.Options{})
//	...
//	defer registration.Unregister() // before n.Close
//
// A client has the same histograms of waits and holds: give its Config the Wait and the Hold of this
// Observer in a client.Observer, and call [RegisterClient].
//
// No metric has an attribute with the name of a lock, unless [Options.Lock] makes
// one: each value of an attribute is a separate time series, and the number of
// names is unbounded.
package dmutexotel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
)

// Options are the attributes of the metrics. The zero value suits most programs.
type Options struct {
	// Lock, if not nil, gives every histogram the attribute dmutex.lock, with
	// the value that it returns for the lock's name. It should return few
	// different values, such as the part before a slash. It is called from many
	// goroutines at once. Bytes that are not UTF-8, which exporters refuse,
	// become U+FFFD.
	Lock func(name string) string

	// Attributes are added to all metrics, for example to distinguish the
	// nodes of a process.
	Attributes []attribute.KeyValue
}

// NewObserver returns an Observer for node.Config that fills these histograms.
// The error is the meter's.
//
//	dmutex.wait         s   how long an Acquire or TryAcquire took; dmutex.outcome as [node.Event] says
//	dmutex.hold         s   how long a lock was held; dmutex.outcome as [node.Event] says
//	dmutex.view.change  s   how long nothing was granted here while the group changed
//
// The histograms of time have bounds from 50 microseconds to 210 seconds, unless a
// view of the SDK changes them. To see events yourself, too, compose with [node.Observers]: a
// function that you set in this Observer takes the place of a histogram.
func NewObserver(meter metric.Meter, o Options) (*node.Observer, error) {
	var errs []error
	histogram := func(m *metrics.Metric) metric.Float64Histogram {
		h, err := meter.Float64Histogram(m.OTel(), metric.WithUnit(m.Unit), metric.WithDescription(m.Help),
			metric.WithExplicitBucketBoundaries(metrics.Bounds...))
		errs = append(errs, err)
		return h
	}
	wait, hold, change := histogram(metrics.Wait), histogram(metrics.Hold), histogram(metrics.View)
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	ctx := context.Background()
	usual := make(map[string][]metric.RecordOption) // by outcome: what need not be made each time
	with := func(lock, outcome string) []metric.RecordOption {
		if made, ok := usual[outcome]; ok {
			return made
		}
		list := append(slices.Clone(o.Attributes), attribute.String("dmutex.outcome", outcome))
		if o.Lock != nil {
			list = append(list, attribute.String("dmutex.lock", strings.ToValidUTF8(o.Lock(lock), "\uFFFD")))
		}
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(list...))}
	}
	if o.Lock == nil {
		for _, outcome := range []string{"granted", "released"} {
			usual[outcome] = with("", outcome)
		}
	}
	return &node.Observer{
		Wait: func(w node.Event) {
			wait.Record(ctx, w.Took.Seconds(), with(w.Lock, w.Outcome)...)
		},
		Hold: func(h node.Event) {
			hold.Record(ctx, h.Took.Seconds(), with(h.Lock, h.Outcome)...)
		},
		View: func(c node.ViewStatus) {
			change.Record(ctx, c.Took.Seconds(), metric.WithAttributes(o.Attributes...))
		},
	}, nil
}
