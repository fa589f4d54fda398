package dmutexotel_test

import (
	"context"
	"fmt"

	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/metrics/otel"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

func Example() {
	ctx := context.Background()
	reader := sdk.NewManualReader() // or one that exports
	provider := sdk.NewMeterProvider(sdk.WithReader(reader))
	meter := provider.Meter("github.com/dmutex/dmutex/metrics/otel")

	observer, err := dmutexotel.NewObserver(meter, dmutexotel.Options{})
	check(err)
	net, err := memlink.New(memlink.Config{})
	check(err)
	n, err := node.OpenStrict(ctx, 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Observer: observer})
	check(err)
	defer n.Close(ctx)
	registration, err := dmutexotel.Register(meter, n, dmutexotel.Options{})
	check(err)
	defer registration.Unregister()

	held, err := n.Mutex("invoices/42").Acquire(ctx)
	check(err)
	check(held.Release())

	var data metricdata.ResourceMetrics
	check(reader.Collect(ctx, &data))
	for _, m := range data.ScopeMetrics[0].Metrics {
		switch d := m.Data.(type) {
		case metricdata.Histogram[float64]:
			if m.Name == "dmutex.wait" {
				fmt.Println(m.Name, d.DataPoints[0].Count)
			}
		case metricdata.Sum[int64]:
			if m.Name == "dmutex.granted" {
				fmt.Println(m.Name, d.DataPoints[0].Value)
			}
		}
	}
	// Output:
	// dmutex.wait 1
	// dmutex.granted 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
