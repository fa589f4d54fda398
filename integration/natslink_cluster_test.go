package integration

import (
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// startCluster runs three servers that are routes to each other.
func startCluster(t *testing.T) []*server.Server {
	t.Helper()
	var servers []*server.Server
	for range 3 {
		options := server.Options{
			Port:    -1,
			Cluster: server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: -1},
		}
		var routes []string
		for _, s := range servers {
			routes = append(routes, "nats-route://"+s.ClusterAddr().String())
		}
		options.Routes = server.RoutesFromStr(strings.Join(routes, ","))
		servers = append(servers, startNATS(t, options))
	}
	for _, s := range servers {
		eventually(t, "the servers do not meet", func() bool {
			z, err := s.Routez(nil)
			require.NoError(t, err)
			met := make(map[string]bool)
			for _, r := range z.Routes {
				met[r.RemoteID] = true
			}
			return len(met) == 2
		})
	}
	return servers
}

// A group is some nodes over NATS that all take one lock, over and over.
type group struct {
	t       *testing.T
	nodes   []*node.Node
	entries [3]atomic.Int64
	entered chan bool // pokes progress
	stop    context.CancelFunc
	working sync.WaitGroup
}

// startGroup opens node 1 on the first connection, and so on, and lets them
// work. Overlap, and a fence that does not rise, are errors.
func startGroup(t *testing.T, conns ...*nats.Conn) *group {
	t.Helper()
	c := &group{t: t, entered: make(chan bool, 1)}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	members := make([]dmutex.NodeID, len(conns))
	for i := range conns {
		members[i] = dmutex.NodeID(i + 1)
	}
	for i, nc := range conns {
		link, err := natslink.New(nc, natslink.Config{Self: members[i], Prefix: prefix})
		require.NoError(t, err)
		n, err := node.OpenStrict(ctx, members[i], members, link, node.Config{Algorithm: ricart.New})
		require.NoError(t, err)
		c.nodes = append(c.nodes, n)
	}
	var inside atomic.Bool
	var last atomic.Uint64
	for i, n := range c.nodes {
		c.working.Go(func() {
			for ctx.Err() == nil {
				held, err := n.Mutex("x").Acquire(ctx)
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("node %d: %v", i+1, err)
					}
					return
				}
				if inside.Swap(true) {
					t.Errorf("node %d is not alone", i+1)
				}
				if before := last.Swap(held.Fence()); before >= held.Fence() {
					t.Errorf("node %d has fence %d after %d", i+1, held.Fence(), before)
				}
				c.entries[i].Add(1)
				select {
				case c.entered <- true:
				default:
				}
				inside.Store(false)
				if err := held.Release(); err != nil {
					t.Errorf("node %d: %v", i+1, err)
				}
			}
		})
	}
	return c
}

// progress waits until every node has entered n times more.
func (c *group) progress(n int64) {
	c.t.Helper()
	for i := range c.nodes {
		goal := c.entries[i].Load() + n
		for c.entries[i].Load() < goal {
			await(c.t, c.entered)
		}
	}
}

func (c *group) end() {
	c.stop()
	c.working.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var closing sync.WaitGroup
	for _, n := range c.nodes {
		closing.Go(func() {
			if err := n.Close(ctx); err != nil {
				c.t.Errorf("Close: %v", err)
			}
		})
	}
	closing.Wait()
}

// Three servers, with a node at each. When a server stops, its node moves to another
// server, and the locks go on. The servers only have to carry subjects: no lock needs
// stored keys, a server's time to live or its revisions. (L57, L58)
func TestNATSCluster(t *testing.T) {
	servers := startCluster(t)
	for _, s := range servers {
		require.False(t, s.JetStreamEnabled())
	}
	moved := make(chan bool, 10)
	var conns []*nats.Conn
	for _, s := range servers {
		conns = append(conns, connect(t, s, nats.ReconnectHandler(func(*nats.Conn) { moved <- true })))
	}
	c := startGroup(t, conns...)
	c.progress(50)
	stopNATS(servers[0])
	await(t, moved)
	require.NotEqual(t, servers[0].ClientURL(), conns[0].ConnectedUrl())
	c.progress(50)
	c.end()
	require.Empty(t, moved, "the others stayed where they were")
}

// If a node's connection is closed, by the application or because nats.go has stopped
// reconnecting, Acquire and Close say so and do not wait. They tell the connection's last error:
// if nats.go has closed it by itself, that is why.
func TestNATSConnectionClosed(t *testing.T) {
	below := &server.SubjectPermission{Allow: []string{prefix + ".>"}}
	s := startNATS(t, server.Options{Port: -1, Users: []*server.User{
		{Username: "member", Permissions: &server.Permissions{Publish: below, Subscribe: below}},
	}, NoAuthUser: "member"})
	conns := []*nats.Conn{connect(t, s), connect(t, s), connect(t, s)}
	c := startGroup(t, conns...)
	c.progress(5)
	c.stop()
	c.working.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, nc := range conns {
		require.NoError(t, nc.Publish("forbidden", nil))
		require.NoError(t, nc.Flush()) // and nc.LastError says why the server has refused it
		nc.Close()
	}
	for _, n := range c.nodes {
		_, err := n.Mutex("y").Acquire(ctx) // for x all may have replied already, to a request that stop has withdrawn
		require.ErrorIs(t, err, transport.ErrClosed)
		require.ErrorContains(t, err, `Publish to "forbidden"`)
		require.ErrorIs(t, n.Close(ctx), transport.ErrClosed)
	}
}

// Two nodes at a hub and one behind a leaf node.
func TestNATSLeafNode(t *testing.T) {
	hub := startNATS(t, server.Options{Port: -1, LeafNode: server.LeafNodeOpts{Host: "127.0.0.1", Port: -1}})
	z, err := hub.Varz(nil)
	require.NoError(t, err)
	address := &url.URL{Scheme: "nats-leaf", Host: "127.0.0.1:" + strconv.Itoa(z.LeafNode.Port)}
	leaf := startNATS(t, server.Options{Port: -1, LeafNode: server.LeafNodeOpts{
		Remotes: []*server.RemoteLeafOpts{{URLs: []*url.URL{address}}},
	}})
	eventually(t, "the leaf does not connect", func() bool { return hub.NumLeafNodes() == 1 && leaf.NumLeafNodes() == 1 })
	c := startGroup(t, connect(t, hub), connect(t, hub), connect(t, leaf))
	c.progress(50)
	c.end()
}
