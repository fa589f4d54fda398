// Package servetest runs a node that serves a client, for tests of what shows a node's status.
package servetest

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A Door is a listener in memory.
type Door chan net.Conn

// Accept returns the other end of a Dial.
func (d Door) Accept() (net.Conn, error) {
	if nc, ok := <-d; ok {
		return nc, nil
	}
	return nil, net.ErrClosed
}

// Close ends Accept.
func (d Door) Close() error { close(d); return nil }

// Addr returns nil.
func (d Door) Addr() net.Addr { return nil }

// Dial returns one end of a pipe.
func (d Door) Dial(context.Context, string) (net.Conn, error) {
	near, far := net.Pipe()
	d <- far
	return near, nil
}

// Run runs a test in a bubble, with a node that has a lease of 16 seconds and a client. The client
// "job-<1>" was refused the lock "secret", holds "l", and waits for "busy", which the node holds.
func Run(t *testing.T, test func(t *testing.T, n *node.Node, c *client.Client)) {
	synctest.Test(t, func(t *testing.T) {
		network, err := memlink.New(memlink.Config{})
		require.NoError(t, err)
		d := make(Door)
		n, err := node.Open(t.Context(), new(store.Memory), network.Link(dmutex.None), node.Config{Lease: 16 * time.Second, Clients: &node.Clients{
			Listeners: []net.Listener{d}, Allow: func(_ net.Conn, _, lock string, _ bool) error {
				if lock == "secret" {
					return errors.New("not for you")
				}
				return nil
			},
		}})
		require.NoError(t, err)
		require.NoError(t, n.Ready(t.Context()))
		c, err := client.New(client.Config{Members: []string{"m"}, Name: "job-<1>", Dial: d.Dial})
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
		test(t, n, c)
		cancel()
		require.NoError(t, c.Close())
		require.NoError(t, own.Release())
		require.NoError(t, n.Close(t.Context()))
	})
}
