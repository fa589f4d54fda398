package serve

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
)

// A page writes metrics in the text format of Prometheus: those of a Source, and what its observer
// has seen. The library for it would add a fifth to the start of the tool, which run pays for
// every command.
type page struct {
	mu     sync.Mutex
	series map[*metrics.Metric]map[string]*series // by label
}

type series struct {
	count []uint64 // by the bounds, and above them
	sum   float64
}

// newPage returns a page on which all histograms are empty.
func newPage() *page {
	p := &page{series: make(map[*metrics.Metric]map[string]*series)}
	for m, labels := range map[*metrics.Metric][]string{metrics.Wait: metrics.WaitOutcomes, metrics.Hold: metrics.HoldOutcomes, metrics.View: {""}} {
		p.series[m] = make(map[string]*series)
		for _, l := range labels {
			p.series[m][l] = &series{count: make([]uint64, len(metrics.Bounds)+1)}
		}
	}
	return p
}

// observer returns an Observer that fills the histograms.
func (p *page) observer() *node.Observer {
	return &node.Observer{
		Wait: func(e node.Event) { p.observe(metrics.Wait, e.Outcome, e.Took.Seconds()) },
		Hold: func(e node.Event) { p.observe(metrics.Hold, e.Outcome, e.Took.Seconds()) },
		View: func(v node.ViewStatus) { p.observe(metrics.View, "", v.Took.Seconds()) },
	}
}

func (p *page) observe(m *metrics.Metric, label string, value float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.series[m][label]
	bucket, _ := slices.BinarySearch(metrics.Bounds, value)
	s.count[bucket]++
	s.sum += value
}

// write writes the page.
func (p *page) write(w io.Writer, of metrics.Source) error {
	lines := make(map[*metrics.Metric][]string)
	of.Read(func(m *metrics.Metric, value float64, label ...string) {
		lines[m] = append(lines[m], line(m, "", value, label...))
	})
	p.mu.Lock()
	for m, all := range p.series {
		for label, s := range all {
			var with []string
			if m.Label != "" {
				with = []string{label}
			}
			var sum uint64
			for i, count := range s.count {
				sum += count
				bound := "+Inf"
				if i < len(metrics.Bounds) {
					bound = number(metrics.Bounds[i])
				}
				lines[m] = append(lines[m], line(m, "_bucket", float64(sum), append(with, bound)...))
			}
			lines[m] = append(lines[m], line(m, "_sum", s.sum, with...), line(m, "_count", float64(sum), with...))
		}
	}
	p.mu.Unlock()
	var b strings.Builder
	for _, m := range slices.Concat(of.Metrics, metrics.Observed) {
		if len(lines[m]) == 0 {
			continue
		}
		kind := [...]string{"gauge", "gauge", "counter", "histogram"}[m.Kind]
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s %[3]s\n%s", m.Prometheus(), m.Help, kind, strings.Join(lines[m], ""))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line writes a value. Its labels are that of the metric, if it has one, and the bound of a bucket.
func line(m *metrics.Metric, part string, value float64, labels ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var list []string
	for i, name := range append(slices.DeleteFunc([]string{m.Label}, func(l string) bool { return l == "" }), "le") {
		if i < len(labels) {
			list = append(list, name+`="`+escape.Replace(strings.ToValidUTF8(labels[i], "\uFFFD"))+`"`)
		}
	}
	text := m.Prometheus() + part
	if len(list) > 0 {
		text += "{" + strings.Join(list, ",") + "}"
	}
	return text + " " + number(value) + "\n"
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
