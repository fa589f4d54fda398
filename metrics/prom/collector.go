package dmutexprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
)

// NewCollector returns the metrics of the present state of a node. Each scrape reads
// the state again and looks at all locks in use. docs/metrics.md lists the metrics:
//
//	dmutex_up, dmutex_down_timestamp_seconds               whether locks are granted here
//	dmutex_locks, dmutex_waiters, dmutex_oldest_...        who holds and who waits
//	dmutex_lease_..., dmutex_locks_draining                the lease, and what a dead member still keeps
//	dmutex_clients, dmutex_client_locks                    clients of this node, and their locks
//	dmutex_peer_...                                        each of the other members
//
// A timestamp is in seconds since 1970: alert on time() minus it.
//
// A peer's label is its name, node.Config.Name, or its number, such as node 3, while the name is not known.
// docs/operating.md says what to alert on, and alerts.yaml has the rules.
func NewCollector(n *node.Node) prometheus.Collector { return newCollector(metrics.Node(n)) }

// NewClientCollector returns the metrics of the present state of a client: dmutex_session_... in
// docs/metrics.md.
func NewClientCollector(c *client.Client) prometheus.Collector {
	return newCollector(metrics.Client(c))
}

type collector struct {
	metrics.Source
	descs map[*metrics.Metric]*prometheus.Desc
}

func newCollector(s metrics.Source) *collector {
	c := &collector{s, make(map[*metrics.Metric]*prometheus.Desc)}
	for _, m := range s.Metrics {
		c.descs[m] = prometheus.NewDesc(m.Prometheus(), m.Help, labels(m), nil)
	}
	return c
}

func labels(m *metrics.Metric) []string {
	if m.Label == "" {
		return nil
	}
	return []string{m.Label}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, m := range c.Metrics {
		to <- c.descs[m]
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(to chan<- prometheus.Metric) {
	c.Read(func(m *metrics.Metric, value float64, label ...string) {
		kind := prometheus.GaugeValue
		if m.Kind == metrics.Counter {
			kind = prometheus.CounterValue
		}
		to <- prometheus.MustNewConstMetric(c.descs[m], kind, value, label...)
	})
}
