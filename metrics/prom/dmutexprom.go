// Package dmutexprom exports the state and the events of a node as Prometheus metrics.
//
//	h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
//	...
//	cfg.Observer = h.Observer()
//	n, err := node.Open(ctx, record, link, cfg)
//	...
//	prometheus.MustRegister(h, dmutexprom.NewCollector(n))
//
// A client has the same histograms of waits and holds, and a collector of its own:
//
//	o := h.Observer()
//	c, err := client.New(client.Config{..., Observer: &client.Observer{Wait: o.Wait, Hold: o.Hold}})
//	...
//	prometheus.MustRegister(h, dmutexprom.NewClientCollector(c))
//
// A process with several nodes registers the metrics of each with
// [prometheus.WrapRegistererWith] and a different label.
//
// No metric has a label with the name of a lock, unless [Options.Lock] makes one:
// each value of a label is a separate time series, kept for as long as the
// process lives, and the number of names is unbounded.
package dmutexprom

import (
	"math"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
)

// Options configure [Histograms]. The zero value suits most programs.
type Options struct {
	// Lock, if not nil, gives every histogram the label lock, with the value
	// that it returns for the lock's name. It should return few different
	// values, such as the part before a slash. It is called from many goroutines
	// at once. Bytes that are not UTF-8, which labels cannot contain, become
	// U+FFFD.
	Lock func(name string) string

	// Buckets are the upper bounds of the histograms of time, in seconds and
	// ascending. The default is 12 bounds from 50 microseconds to 210 seconds,
	// each 4 times the one before it.
	Buckets []float64
}

// Histograms are the metrics of the events that an Observer sees. Histograms
// implements [prometheus.Collector].
//
//	dmutex_wait_seconds{outcome}   how long an Acquire or TryAcquire took; outcome as [node.Event] says
//	dmutex_hold_seconds{outcome}   how long a lock was held; outcome as [node.Event] says
//	dmutex_view_change_seconds     how long nothing was granted here while the group changed
//
// dmutex_view_change_seconds never has the label lock.
//
// All series exist from the beginning, except those with a label lock, which begin
// with their first event.
type Histograms struct {
	lock       func(name string) string
	wait, hold *prometheus.HistogramVec
	change     prometheus.Histogram
}

// NewHistograms returns empty histograms. It returns [dmutex.ErrMisuse] if the
// Buckets are not ascending.
func NewHistograms(o Options) (*Histograms, error) {
	if len(o.Buckets) == 0 {
		o.Buckets = metrics.Bounds
	}
	for i, bound := range o.Buckets {
		if math.IsNaN(bound) || i > 0 && bound <= o.Buckets[i-1] {
			return nil, dmutex.Misuse("dmutexprom: Options.Buckets are not ascending")
		}
	}
	var more []string
	if o.Lock != nil {
		more = []string{"lock"}
	}
	opts := func(m *metrics.Metric) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: m.Prometheus(), Help: m.Help, Buckets: slices.Clone(o.Buckets)}
	}
	h := &Histograms{
		lock:   o.Lock,
		wait:   prometheus.NewHistogramVec(opts(metrics.Wait), append(more, labels(metrics.Wait)...)),
		hold:   prometheus.NewHistogramVec(opts(metrics.Hold), append(more, labels(metrics.Hold)...)),
		change: prometheus.NewHistogram(opts(metrics.View)),
	}
	if h.lock == nil {
		// If a series began with its first event, rate and increase would not see
		// that event: the first lost lock must not go unseen.
		for _, outcome := range metrics.WaitOutcomes {
			h.wait.WithLabelValues(outcome)
		}
		for _, outcome := range metrics.HoldOutcomes {
			h.hold.WithLabelValues(outcome)
		}
	}
	return h, nil
}

// Observer returns an Observer for node.Config that fills these histograms. To see events
// yourself, too, compose with [node.Observers]: a function that you set in this Observer takes the
// place of a histogram.
func (h *Histograms) Observer() *node.Observer {
	return &node.Observer{
		Wait: func(w node.Event) {
			h.with(h.wait, w.Lock, w.Outcome).Observe(w.Took.Seconds())
		},
		Hold: func(hold node.Event) {
			h.with(h.hold, hold.Lock, hold.Outcome).Observe(hold.Took.Seconds())
		},
		View: func(c node.ViewStatus) { h.change.Observe(c.Took.Seconds()) },
	}
}

// with returns the histogram of the lock's label, if there is one, and the others.
func (h *Histograms) with(v *prometheus.HistogramVec, lock string, labels ...string) prometheus.Observer {
	if h.lock != nil {
		labels = append([]string{strings.ToValidUTF8(h.lock(lock), "\uFFFD")}, labels...)
	}
	return v.WithLabelValues(labels...)
}

func (h *Histograms) all() [3]prometheus.Collector {
	return [...]prometheus.Collector{h.wait, h.hold, h.change}
}

// Describe implements [prometheus.Collector].
func (h *Histograms) Describe(c chan<- *prometheus.Desc) {
	for _, v := range h.all() {
		v.Describe(c)
	}
}

// Collect implements [prometheus.Collector].
func (h *Histograms) Collect(c chan<- prometheus.Metric) {
	for _, v := range h.all() {
		v.Collect(c)
	}
}
