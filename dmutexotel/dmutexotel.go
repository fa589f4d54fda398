// Package dmutexotel exports what a node does as OpenTelemetry metrics.
//
//	meter := otel.Meter("github.com/dmutex/dmutex/dmutexotel")
//	cfg.Observer, err = dmutexotel.NewObserver(meter, dmutexotel.Options{})
//	...
//	n, err := node.Open(ctx, cfg)
//	...
//	registration, err := dmutexotel.Register(meter, n, dmutexotel.Options{})
//	...
//	defer registration.Unregister() // before n.Close
//
// No metric has an attribute with the name of a lock, unless [Options.Lock] makes
// one: each value of an attribute is a time series of its own, and there may be
// any number of names.
package dmutexotel

import (
	"context"
	"errors"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/dmutex/dmutex/node"
)

// Options say how the metrics are told apart. The zero value is good for most.
type Options struct {
	// Lock, if not nil, gives every histogram the attribute dmutex.lock, with
	// what it makes of the lock's name. It should have few results, such as the
	// part before a slash. It is called from many goroutines at once. Bytes that
	// are no UTF-8, which exporters refuse, become U+FFFD.
	Lock func(name string) string

	// Attributes are given to all metrics, such as one that tells the nodes of
	// a process apart.
	Attributes []attribute.KeyValue
}

// NewObserver returns what node.Config wants to be measured by these histograms,
// and the meter's errors.
//
//	dmutex.wait.duration      s   how long an Acquire or TryAcquire took; dmutex.outcome as [node.Wait.Outcome] says
//	dmutex.hold.duration      s   how long a lock was held; dmutex.outcome as [node.Hold.Outcome] says
//	dmutex.handoff.duration   s   from the end of a hold to the next grant here, if somebody here waited all the while
//	dmutex.entry.messages         messages of an entry that this node sent or received
//
// Those of time have bounds from 50 microseconds to 210 seconds, if the SDK has no
// view that says otherwise.
func NewObserver(meter metric.Meter, o Options) (*node.Observer, error) {
	var errs []error
	seconds := func(name, description string) metric.Float64Histogram {
		h, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
			metric.WithExplicitBucketBoundaries(bounds(50e-6, 4)...))
		errs = append(errs, err)
		return h
	}
	wait := seconds("dmutex.wait.duration", "How long an Acquire or TryAcquire took.")
	hold := seconds("dmutex.hold.duration", "How long a lock was held.")
	handoff := seconds("dmutex.handoff.duration", "From the end of a hold to the next grant at this node, if somebody waited here all the while.")
	entry, err := meter.Int64Histogram("dmutex.entry.messages", metric.WithUnit("{message}"),
		metric.WithDescription("Messages of an entry that this node sent or received."),
		metric.WithExplicitBucketBoundaries(bounds(1, 2)...))
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	ctx := context.Background()
	usual := make(map[string][]metric.RecordOption) // by outcome: what need not be made each time
	with := func(lock, outcome string) []metric.RecordOption {
		if made, ok := usual[outcome]; ok {
			return made
		}
		list := slices.Clone(o.Attributes)
		if outcome != "" {
			list = append(list, attribute.String("dmutex.outcome", outcome))
		}
		if o.Lock != nil {
			list = append(list, attribute.String("dmutex.lock", strings.ToValidUTF8(o.Lock(lock), "\uFFFD")))
		}
		return []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(list...))}
	}
	if o.Lock == nil {
		for _, outcome := range []string{"", "granted", "released"} {
			usual[outcome] = with("", outcome)
		}
	}
	return &node.Observer{
		Wait: func(w node.Wait) {
			wait.Record(ctx, w.Took.Seconds(), with(w.Lock, w.Outcome())...)
			if w.Handoff > 0 {
				handoff.Record(ctx, w.Handoff.Seconds(), with(w.Lock, "")...)
			}
		},
		Hold: func(h node.Hold) {
			hold.Record(ctx, h.Took.Seconds(), with(h.Lock, h.Outcome())...)
			entry.Record(ctx, int64(h.Messages), with(h.Lock, "")...)
		},
	}, nil
}

// bounds returns 12 upper bounds, the first and each times as much as the one
// before it.
func bounds(first, times float64) []float64 {
	list := []float64{first}
	for len(list) < 12 {
		list = append(list, times*list[len(list)-1])
	}
	return list
}
