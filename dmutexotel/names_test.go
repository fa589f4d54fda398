package dmutexotel_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"github.com/dmutex/dmutex/dmutexotel"
)

// A lister is a Meter that notes the names of the instruments that it makes, and those that an
// exporter for Prometheus gives them.
type lister struct {
	noop.Meter
	names, exported []string
}

func (l *lister) note(name, unit, end string) {
	l.names = append(l.names, name)
	l.exported = append(l.exported, strings.ReplaceAll(name, ".", "_")+map[string]string{"s": "_seconds", "By": "_bytes"}[unit]+end)
}

func (l *lister) Float64Histogram(name string, o ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	l.note(name, metric.NewFloat64HistogramConfig(o...).Unit(), "")
	return l.Meter.Float64Histogram(name, o...)
}

func (l *lister) Int64ObservableCounter(name string, o ...metric.Int64ObservableCounterOption) (metric.Int64ObservableCounter, error) {
	l.note(name, metric.NewInt64ObservableCounterConfig(o...).Unit(), "_total")
	return l.Meter.Int64ObservableCounter(name, o...)
}

func (l *lister) Int64ObservableUpDownCounter(name string, o ...metric.Int64ObservableUpDownCounterOption) (metric.Int64ObservableUpDownCounter, error) {
	l.note(name, metric.NewInt64ObservableUpDownCounterConfig(o...).Unit(), "")
	return l.Meter.Int64ObservableUpDownCounter(name, o...)
}

func (l *lister) Int64ObservableGauge(name string, o ...metric.Int64ObservableGaugeOption) (metric.Int64ObservableGauge, error) {
	l.note(name, metric.NewInt64ObservableGaugeConfig(o...).Unit(), "")
	return l.Meter.Int64ObservableGauge(name, o...)
}

func (l *lister) Float64ObservableGauge(name string, o ...metric.Float64ObservableGaugeOption) (metric.Float64ObservableGauge, error) {
	l.note(name, metric.NewFloat64ObservableGaugeConfig(o...).Unit(), "")
	return l.Meter.Float64ObservableGauge(name, o...)
}

// The name that an exporter for Prometheus gives a metric is the metric's name in package
// dmutexprom. (A test there compares the documentation with the code.) The documentation of
// this package lists each metric, too.
func TestNames(t *testing.T) {
	meter := new(lister)
	_, err := dmutexotel.NewObserver(meter, dmutexotel.Options{})
	require.NoError(t, err)
	_, err = dmutexotel.Register(meter, nil, dmutexotel.Options{})
	require.NoError(t, err)
	listed := func(files ...string) (names []string) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, match := range regexp.MustCompile(`(?m)^//\t(dmutex[._][\w.]+)`).FindAllStringSubmatch(string(text), -1) {
				if !strings.Contains(match[1], "NewObserver") && !strings.Contains(match[1], "Register") {
					names = append(names, match[1])
				}
			}
		}
		return names
	}
	require.ElementsMatch(t, listed("../dmutexprom/collector.go", "../dmutexprom/dmutexprom.go"), meter.exported)
	require.ElementsMatch(t, listed("register.go", "dmutexotel.go"), meter.names)
}
