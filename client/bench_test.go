package client_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// BenchmarkAcquire takes a lock over TCP. The client's member is the lock's home.
func BenchmarkAcquire(b *testing.B) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(b, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	n, err := node.Open(b.Context(), new(store.Memory), network.Link(dmutex.None),
		node.Config{Lease: time.Second, Clients: &node.Clients{Listeners: []net.Listener{listener}}})
	require.NoError(b, err)
	c, err := client.New(client.Config{Members: []string{listener.Addr().String()}})
	require.NoError(b, err)
	m := c.Mutex("l")
	b.ReportAllocs()
	for b.Loop() {
		h, err := m.Acquire(b.Context())
		require.NoError(b, err)
		require.NoError(b, h.Release())
	}
	require.NoError(b, c.Close())
	require.NoError(b, n.Close(b.Context()))
}
