package dmutexprom_test

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/metrics/prom"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

func Example() {
	ctx := context.Background()
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
	check(err)
	net, err := memlink.New(memlink.Config{})
	check(err)
	n, err := node.OpenStrict(ctx, 1, []dmutex.NodeID{1}, net.Link(1), node.Config{
		Observer: h.Observer(),
	})
	check(err)
	defer n.Close(ctx)
	reg := prometheus.NewRegistry() // or prometheus.DefaultRegisterer, which promhttp.Handler serves
	reg.MustRegister(h, dmutexprom.NewCollector(n))

	held, err := n.Mutex("invoices/42").Acquire(ctx)
	check(err)
	check(held.Release())

	metrics, err := reg.Gather()
	check(err)
	for _, m := range metrics {
		switch m.GetName() {
		case "dmutex_granted_total":
			fmt.Println(m.GetName(), m.GetMetric()[0].GetCounter().GetValue())
		case "dmutex_hold_seconds":
			fmt.Println(m.GetName(), m.GetMetric()[1].GetHistogram().GetSampleCount()) // lost, released
		}
	}
	// Output:
	// dmutex_granted_total 1
	// dmutex_hold_seconds 1
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
