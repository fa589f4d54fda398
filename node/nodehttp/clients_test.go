package nodehttp_test

import (
	"context"
	"encoding/json"
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

// The page and the JSON name the clients, what each holds and waits for, and count what was refused.
func TestClients(t *testing.T) {
	served(t, func(t *testing.T, n *node.Node) {
		body := get(n, "/", nil).Body.String()
		require.Contains(t, body, `<td class="name">job-&lt;1&gt;</td><td>pipe</td><td class="name">l</td><td class="name">busy</td><td class="n">16s</td>`)
		require.Contains(t, body, "Refused from clients 1")
		body = get(n, "/?format=json", nil).Body.String()
		var v struct {
			Clients []struct {
				Name, Address   string
				Holds, WaitsFor []string
				LeftSeconds     float64
			}
			ClientsRefused int
		}
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		require.Len(t, v.Clients, 1)
		require.Equal(t, "job-<1>", v.Clients[0].Name)
		require.Equal(t, []string{"l"}, v.Clients[0].Holds)
		require.Equal(t, []string{"busy"}, v.Clients[0].WaitsFor)
		require.InDelta(t, 16, v.Clients[0].LeftSeconds, 1)
		require.Equal(t, 1, v.ClientsRefused)
	})
}
