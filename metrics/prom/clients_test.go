package dmutexprom_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/servetest"
	"github.com/dmutex/dmutex/metrics/prom"
	"github.com/dmutex/dmutex/node"
)

// A member that serves clients counts them, the locks that they hold and wait for, and its refusals.
func TestClients(t *testing.T) {
	servetest.Run(t, func(t *testing.T, n *node.Node, _ *client.Client) {
		require.NoError(t, testutil.CollectAndCompare(dmutexprom.NewCollector(n), strings.NewReader(`
# HELP dmutex_client_locks Locks that clients of this node hold (held) or wait for (waiting). Only in the lease mode.
# TYPE dmutex_client_locks gauge
dmutex_client_locks{state="held"} 1
dmutex_client_locks{state="waiting"} 1
# HELP dmutex_clients Clients that this node serves. Only in the lease mode.
# TYPE dmutex_clients gauge
dmutex_clients 1
# HELP dmutex_clients_refused_total Clients and requests of clients that were not allowed, or too many, and connections of clients that failed before a hello, for example because a certificate has expired. Only in the lease mode.
# TYPE dmutex_clients_refused_total counter
dmutex_clients_refused_total 1
`), "dmutex_client_locks", "dmutex_clients", "dmutex_clients_refused_total"))
	})
}

// A client has metrics of its session, and the histograms of its waits.
func TestClient(t *testing.T) {
	h, err := dmutexprom.NewHistograms(dmutexprom.Options{})
	require.NoError(t, err)
	o := h.Observer()
	c, err := client.New(client.Config{
		Members: []string{"a"}, Observer: &client.Observer{Wait: o.Wait, Hold: o.Hold},
		Dial: func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody listens") },
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.Mutex("x").Acquire(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, testutil.CollectAndCompare(dmutexprom.NewClientCollector(c), strings.NewReader(`
# HELP dmutex_session_locks Locks that this client holds (held) or waits for (waiting).
# TYPE dmutex_session_locks gauge
dmutex_session_locks{state="held"} 0
dmutex_session_locks{state="waiting"} 0
# HELP dmutex_session_up Whether this client has a session with a member.
# TYPE dmutex_session_up gauge
dmutex_session_up 0
`), "dmutex_session_locks", "dmutex_session_up"))
	require.Equal(t, 1, canceled(t, h))
	require.NoError(t, c.Close())
}

// canceled returns how many waits were canceled.
func canceled(t *testing.T, h *dmutexprom.Histograms) (count int) {
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(h))
	all, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range all {
		for _, m := range family.GetMetric() {
			if family.GetName() == "dmutex_wait_seconds" && m.GetLabel()[0].GetValue() == "canceled" {
				count += int(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return count
}
