package dmutexotel_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/metrics/otel"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// observed runs a test in fake time, with two nodes. The first one is observed.
func observed(t *testing.T, o dmutexotel.Options, test func(t *testing.T, one, two *node.Node, meter metric.Meter, read func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		provider := sdk.NewMeterProvider(sdk.WithReader(reader))
		meter := provider.Meter("test")
		observer, err := dmutexotel.NewObserver(meter, o)
		require.NoError(t, err)
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		open := func(id dmutex.NodeID, o *node.Observer) *node.Node {
			n, err := node.OpenStrict(t.Context(), id, []dmutex.NodeID{1, 2}, net.Link(id), node.Config{
				Algorithm: ricart.New, Name: fmt.Sprint("web-", id), Observer: o,
			})
			require.NoError(t, err)
			return n
		}
		one, two := open(1, observer), open(2, nil)
		require.NoError(t, one.Ready(t.Context()))
		require.NoError(t, two.Ready(t.Context()))
		synctest.Wait() // the Observer knows of the view
		test(t, one, two, meter, func() []string { return lines(t, reader) })
		hurry, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = one.Close(hurry)
		_ = two.Close(hurry)
		require.NoError(t, provider.Shutdown(context.Background()))
	})
}

// lines writes each point of all metrics as one line, in order.
func lines(t *testing.T, reader *sdk.ManualReader) (list []string) {
	var data metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &data))
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			add := func(set attribute.Set, format string, args ...any) {
				name := m.Name
				if text := set.Encoded(attribute.DefaultEncoder()); text != "" {
					name += "{" + text + "}"
				}
				list = append(list, name+fmt.Sprintf(format, args...)+m.Unit)
			}
			switch d := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, " %d times, sum %v ", p.Count, p.Sum)
				}
			case metricdata.Histogram[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, " %d times, sum %v ", p.Count, p.Sum)
				}
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, " %v ", p.Value)
				}
			case metricdata.Gauge[int64]:
				for _, p := range d.DataPoints {
					add(p.Attributes, " %v ", p.Value)
				}
			case metricdata.Gauge[float64]:
				for _, p := range d.DataPoints {
					if strings.HasSuffix(m.Name, ".timestamp") { // the fake time begins with the year 2000
						p.Value = math.Round((p.Value-946684800)*100) / 100
					}
					add(p.Attributes, " %v ", p.Value)
				}
			default:
				t.Errorf("%s is a %T", m.Name, d)
			}
		}
	}
	slices.Sort(list)
	return list
}

func acquire(t *testing.T, n *node.Node, name string) lock.Held {
	t.Helper()
	h, err := n.Mutex(name).Acquire(t.Context())
	require.NoError(t, err)
	return h
}

// L79: the user does not have to measure waits and holds himself.
func TestObserver(t *testing.T) {
	observed(t, dmutexotel.Options{}, func(t *testing.T, one, two *node.Node, _ metric.Meter, read func() []string) {
		first := acquire(t, one, "x")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := one.Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		remote, later := make(chan lock.Held), make(chan lock.Held)
		wait := func(n *node.Node, to chan lock.Held) {
			h, err := n.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			to <- h
		}
		go wait(two, remote)
		synctest.Wait()
		go wait(one, later)
		time.Sleep(15 * time.Second)
		require.NoError(t, first.Release())
		time.Sleep(2 * time.Second)
		require.NoError(t, (<-remote).Release())
		require.NoError(t, (<-later).Release())
		seen := read()
		require.Equal(t, []string{
			"dmutex.hold{dmutex.outcome=released} 2 times, sum 20 s",
			"dmutex.view.change 1 times, sum 0 s",
			"dmutex.wait{dmutex.outcome=deadline} 1 times, sum 5 s",
			"dmutex.wait{dmutex.outcome=granted} 2 times, sum 17 s",
		}, seen)
		for _, m := range metrics.Observed {
			require.Contains(t, strings.Join(seen, "\n"), m.OTel(), "no Observer sees it")
		}
	})
}

// The names of locks become attributes only through Options.Lock.
func TestAttributes(t *testing.T) {
	o := dmutexotel.Options{
		Lock:       func(name string) string { before, _, _ := strings.Cut(name, "/"); return before },
		Attributes: []attribute.KeyValue{attribute.Int("node", 1)},
	}
	observed(t, o, func(t *testing.T, one, _ *node.Node, meter metric.Meter, read func() []string) {
		for i := range 10 {
			require.NoError(t, acquire(t, one, fmt.Sprint("a/", i)).Release())
			require.NoError(t, acquire(t, one, fmt.Sprint("b/", i)).Release())
		}
		require.Equal(t, []string{
			"dmutex.hold{dmutex.lock=a,dmutex.outcome=released,node=1} 10 times, sum 0 s",
			"dmutex.hold{dmutex.lock=b,dmutex.outcome=released,node=1} 10 times, sum 0 s",
			"dmutex.view.change{node=1} 1 times, sum 0 s",
			"dmutex.wait{dmutex.lock=a,dmutex.outcome=granted,node=1} 10 times, sum 0 s",
			"dmutex.wait{dmutex.lock=b,dmutex.outcome=granted,node=1} 10 times, sum 0 s",
		}, read())
		o.Attributes = []attribute.KeyValue{attribute.Int("node", 1), attribute.Int("b", 1), attribute.Int("a", 1)}
		_, err := dmutexotel.Register(meter, one, o)
		require.NoError(t, err)
		require.Equal(t, []attribute.KeyValue{attribute.Int("node", 1), attribute.Int("b", 1), attribute.Int("a", 1)}, o.Attributes, "Register leaves the caller's slice alone")
		require.NoError(t, acquire(t, one, "\xff/").Release())
		require.Contains(t, strings.Join(read(), "\n"), "dmutex.lock=\uFFFD,")
		for _, line := range read() {
			require.Contains(t, line, "node=1")
		}
	})
}

// An Observer allocates nothing.
func TestNoAllocations(t *testing.T) {
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewManualReader()))
	o, err := dmutexotel.NewObserver(provider.Meter("test"), dmutexotel.Options{})
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		o.Wait(node.Event{Lock: "x", Took: 1, Outcome: "granted"})
		o.Hold(node.Event{Lock: "x", Took: 1, Outcome: "released"})
	}))
}

func TestRegister(t *testing.T) {
	observed(t, dmutexotel.Options{}, func(t *testing.T, one, two *node.Node, meter metric.Meter, read func() []string) {
		registration, err := dmutexotel.Register(meter, one, dmutexotel.Options{})
		require.NoError(t, err)
		acquire(t, two, "y")
		for range 2 {
			go func() { _, _ = one.Mutex("y").Acquire(t.Context()) }()
		}
		time.Sleep(7 * time.Second)
		require.Equal(t, []string{
			"dmutex.deadlock.probes 0 {message}",
			"dmutex.deadlocks 0 {wait}",
			"dmutex.granted 0 {grant}",
			"dmutex.locks.shared 0 {lock}",
			"dmutex.locks{dmutex.state=held} 0 {lock}",
			"dmutex.locks{dmutex.state=waiting} 1 {lock}",
			"dmutex.messages.received{dmutex.kind=FAILED} 0 {message}",
			"dmutex.messages.received{dmutex.kind=GRANT} 0 {message}",
			"dmutex.messages.received{dmutex.kind=INQUIRE} 0 {message}",
			"dmutex.messages.received{dmutex.kind=RELEASE} 0 {message}",
			"dmutex.messages.received{dmutex.kind=REPLY} 0 {message}",
			"dmutex.messages.received{dmutex.kind=REQUEST} 1 {message}",
			"dmutex.messages.received{dmutex.kind=SHARE} 0 {message}",
			"dmutex.messages.received{dmutex.kind=TOKEN} 0 {message}",
			"dmutex.messages.received{dmutex.kind=YIELD} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=FAILED} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=GRANT} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=INQUIRE} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=RELEASE} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=REPLY} 1 {message}",
			"dmutex.messages.sent{dmutex.kind=REQUEST} 1 {message}",
			"dmutex.messages.sent{dmutex.kind=SHARE} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=TOKEN} 0 {message}",
			"dmutex.messages.sent{dmutex.kind=YIELD} 0 {message}",
			"dmutex.oldest.timestamp{dmutex.state=waiting} 0 s",
			"dmutex.peer.backlog{dmutex.peer=web-2} 0 By",
			"dmutex.peer.heard.timestamp{dmutex.peer=web-2} 0.02 s", // it has acknowledged
			"dmutex.peer.in_view{dmutex.peer=web-2} 1 ",
			"dmutex.peer.missing{dmutex.peer=web-2} 0 ",
			"dmutex.peer.repeated_frames{dmutex.peer=web-2} 0 {frame}",
			"dmutex.peer.resent_frames{dmutex.peer=web-2} 0 {frame}",
			"dmutex.peer.unacked_messages{dmutex.peer=web-2} 0 {message}",
			"dmutex.refused 0 {message}",
			"dmutex.up 1 ",
			"dmutex.view.change 1 times, sum 0 s",
			"dmutex.view.changes 1 {view}",
			"dmutex.view.members 2 ",
			"dmutex.waiters 2 {goroutine}",
		}, slices.DeleteFunc(read(), func(line string) bool {
			return strings.HasPrefix(line, "dmutex.peer.round_trip") || strings.HasPrefix(line, "dmutex.view.epoch")
		}))
		require.NoError(t, two.Close(t.Context()))
		time.Sleep(3 * time.Second)
		for _, line := range []string{"dmutex.peer.in_view{dmutex.peer=web-2} 0 ", "dmutex.up 1 ", "dmutex.view.changes 2 {view}", "dmutex.view.members 1 "} {
			require.Contains(t, read(), line)
		}
		require.NoError(t, one.Close(t.Context()))
		require.Contains(t, read(), "dmutex.up 0 ")
		require.NoError(t, registration.Unregister())
		require.NotContains(t, strings.Join(read(), "\n"), "dmutex.up")
	})
}

// A node that waits for a member is not up. It reports the member and how long it has
// waited.
func TestNotUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1, 2}, net.Link(1), node.Config{Algorithm: ricart.New})
		require.NoError(t, err)
		_, err = dmutexotel.Register(meter, n, dmutexotel.Options{})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		read := lines(t, reader)
		for _, line := range []string{"dmutex.up 0 ", "dmutex.down.timestamp 0 s", "dmutex.peer.missing{dmutex.peer=node 2} 1 "} {
			require.Contains(t, read, line)
		}
		require.NoError(t, n.Close(t.Context()))
	})
}

// A node with a store reports its lease.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reader := sdk.NewManualReader()
		meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("test")
		net, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), new(store.Memory), net.Link(dmutex.None), node.Config{Algorithm: ricart.New, Lease: 16 * time.Second})
		require.NoError(t, err)
		_, err = dmutexotel.Register(meter, n, dmutexotel.Options{})
		require.NoError(t, err)
		time.Sleep(time.Second)
		read := lines(t, reader)
		for _, line := range []string{"dmutex.lease.remaining 14 s", "dmutex.lease.late 0 ", "dmutex.exclusions 0 {exclusion}", "dmutex.locks.draining 0 {lock}"} {
			require.Contains(t, read, line)
		}
		require.NoError(t, n.Close(t.Context()))
	})
}
