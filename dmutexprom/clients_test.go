package dmutexprom_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/dmutexprom"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A door is where clients connect in memory.
type door chan net.Conn

func (d door) Accept() (net.Conn, error) {
	if nc, ok := <-d; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}
func (d door) Close() error   { close(d); return nil }
func (d door) Addr() net.Addr { return nil }

func (d door) dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	d <- far
	return near, nil
}

// served runs a test with a node whose client "job-<1>" holds a lock and waits for another, after one
// that it may not have.
func served(t *testing.T, test func(t *testing.T, n *node.Node)) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		d := make(door)
		n, err := node.Open(t.Context(), new(store.Memory), network.Link(dmutex.None), node.Config{Lease: 16 * time.Second, Clients: &node.Clients{
			Listeners: []net.Listener{d}, Allow: func(_ net.Conn, _, lock string) error {
				if lock == "secret" {
					return errors.New("not for you")
				}
				return nil
			},
		}})
		require.NoError(t, err)
		require.NoError(t, n.Ready(t.Context()))
		c, err := client.New(client.Config{Members: []string{"m"}, Name: "job-<1>", Dial: d.dial})
		require.NoError(t, err)
		_, err = c.Mutex("secret").Acquire(t.Context())
		require.ErrorIs(t, err, client.ErrRefused)
		own, err := n.Mutex("busy").Acquire(t.Context())
		require.NoError(t, err)
		_, err = c.Mutex("l").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _, _ = c.Mutex("busy").Acquire(ctx) }()
		synctest.Wait()
		test(t, n)
		cancel()
		require.NoError(t, c.Close())
		require.NoError(t, own.Release())
		require.NoError(t, n.Close(t.Context()))
	})
}

// A member that serves clients counts them, what they hold and wait for, and what it has refused.
func TestClients(t *testing.T) {
	served(t, func(t *testing.T, n *node.Node) {
		require.NoError(t, testutil.CollectAndCompare(dmutexprom.NewCollector(n), strings.NewReader(`
# HELP dmutex_client_locks Locks that clients of this node hold or wait for.
# TYPE dmutex_client_locks gauge
dmutex_client_locks{state="held"} 1
dmutex_client_locks{state="waiting"} 1
# HELP dmutex_clients Clients that this node serves.
# TYPE dmutex_clients gauge
dmutex_clients 1
# HELP dmutex_clients_refused_total Clients and requests of clients that were not allowed, or too many.
# TYPE dmutex_clients_refused_total counter
dmutex_clients_refused_total 1
`), "dmutex_client_locks", "dmutex_clients", "dmutex_clients_refused_total"))
	})
}
