// Package metrics has the metrics of a node: one table, from which the adapters for Prometheus and
// OpenTelemetry and docs/metrics.md are made.
package metrics

import "strings"

// A Kind says how a metric may change.
type Kind uint8

// The kinds.
const (
	Gauge     Kind = iota // any number, at this moment
	Sum                   // the same, of what can be added up over nodes
	Counter               // only rises
	Histogram             // of what an Observer sees
)

// A Metric is one row of the table.
type Metric struct {
	Name  string // of OpenTelemetry, without the first part "dmutex."
	Kind  Kind
	Unit  string // of OpenTelemetry; that of times is s
	Label string // empty if the metric has one value
	Help  string
}

// Prometheus returns the name that an exporter for Prometheus gives the metric.
func (m *Metric) Prometheus() string {
	name := "dmutex_" + strings.ReplaceAll(m.Name, ".", "_")
	switch {
	case m.Unit == "s":
		name += "_seconds"
	case m.Unit == "By":
		name += "_bytes"
	case m.Kind == Counter:
		name += "_total"
	}
	return name
}

// OTel returns the name in OpenTelemetry.
func (m *Metric) OTel() string { return "dmutex." + m.Name }

// A See is called with a value of a metric, and with that of its label if it has one.
type See func(m *Metric, value float64, label ...string)

// A Source is something that has metrics. Read looks at it now.
type Source struct {
	Metrics []*Metric
	Read    func(see See)
}

// A table is the metrics of a kind of Source.
type table []*Metric

func (t *table) add(kind Kind, name, unit, label, help string) *Metric {
	m := &Metric{Name: name, Kind: kind, Unit: unit, Label: label, Help: help}
	*t = append(*t, m)
	return m
}

// Observed are the metrics of what an Observer sees.
var (
	Observed table

	Wait = Observed.add(Histogram, "wait", "s", "outcome", "How long an Acquire or TryAcquire took.")
	Hold = Observed.add(Histogram, "hold", "s", "outcome", "How long a lock was held.")
	View = Observed.add(Histogram, "view.change", "s", "", "How long nothing was granted here while the group changed.")
)

// Bounds are the usual upper bounds of histograms, in seconds: each is 4 times the one before it.
var Bounds = []float64{50e-6, 200e-6, 800e-6, 3.2e-3, 12.8e-3, 51.2e-3, 0.2048, 0.8192, 3.2768, 13.1072, 52.4288, 209.7152}

// The outcomes that label Wait and Hold, as node.Event says.
var (
	WaitOutcomes = []string{"granted", "busy", "canceled", "deadline", "deadlock", "failed"}
	HoldOutcomes = []string{"released", "lost"}
)
