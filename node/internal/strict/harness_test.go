// Package strict tests nodes without a store: see node.OpenStrict.
package strict

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// each runs a test in a synctest bubble (fake time; no goroutine may be left)
// for every algorithm, or for some where tests are to be quick.
func each(t *testing.T, test func(t *testing.T, g *group)) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) { bubble(t, a.Algorithm, memlink.Config{}, test) })
	}
}

func bubble(t *testing.T, a dmutex.Algorithm, cfg memlink.Config, test func(t *testing.T, g *group)) {
	synctest.Test(t, func(t *testing.T) {
		net, err := memlink.New(cfg)
		require.NoError(t, err)
		g := &group{t: t, net: net, algorithm: a, nodes: make(map[dmutex.NodeID]*node.Node), links: make(map[dmutex.NodeID]*tapped)}
		t.Cleanup(func() { // also if the test fails
			for id := range g.nodes {
				g.close(id)
			}
		})
		test(t, g)
	})
}

// A group is some nodes on one memlink network, without a store.
type group struct {
	t         *testing.T
	net       *memlink.Network
	algorithm dmutex.Algorithm
	deadlock  time.Duration
	members   []dmutex.NodeID
	nodes     map[dmutex.NodeID]*node.Node
	links     map[dmutex.NodeID]*tapped // of nodes that start began
	recorders []*trace.Recorder
}

// open starts members 1..n and lets them meet.
func (g *group) open(n int) {
	for id := range dmutex.NodeID(n) {
		g.members = append(g.members, id+1)
	}
	for _, id := range g.members {
		g.start(id)
	}
	for _, n := range g.nodes {
		require.NoError(g.t, n.Ready(g.t.Context()))
	}
}

func (g *group) start(id dmutex.NodeID) *node.Node {
	return g.startWith(id, node.Config{Algorithm: g.algorithm, Name: fmt.Sprint("web-", id), Deadlock: g.deadlock})
}

func (g *group) startWith(id dmutex.NodeID, cfg node.Config) *node.Node {
	g.links[id] = &tapped{Link: g.net.Link(id)}
	n, err := node.OpenStrict(g.t.Context(), id, g.members, g.links[id], cfg)
	require.NoError(g.t, err)
	g.nodes[id] = n
	return n
}

// tapped is a link in whose name a test may tell the node something.
type tapped struct {
	transport.Link
	host transport.Host
}

func (l *tapped) Open(host transport.Host) error {
	l.host = host
	return l.Link.Open(host)
}

// closeLink closes the link of a node, which notices it when it sends to all.
func (g *group) closeLink(id dmutex.NodeID) {
	require.NoError(g.t, g.links[id].Close())
	_ = g.mutex(id, "x").Ask(g.t.Context())
	synctest.Wait()
}

// taken lets a peer say that it has met another process with the node's number, and a higher life.
func (g *group) taken(id, by dmutex.NodeID) { g.links[id].host.Taken(by, g.nodes[id].Status().Life+1) }

// close closes a node that is still there; peers or the link may be gone, so it does not
// insist on the farewell.
func (g *group) close(id dmutex.NodeID) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := g.nodes[id].Close(ctx); err != nil && !errors.Is(err, transport.ErrClosed) {
		require.ErrorIs(g.t, err, context.DeadlineExceeded)
	}
	delete(g.nodes, id)
}

// crash cuts a node off and closes it, so that its peers hear no farewell. Then it heals the
// network.
func (g *group) crash(id dmutex.NodeID) {
	for _, other := range g.members {
		g.net.Cut(id, other)
	}
	g.close(id)
	g.net.Heal()
}

func (g *group) mutex(id dmutex.NodeID, name string) *node.Mutex { return g.nodes[id].Mutex(name) }

func (g *group) acquire(id dmutex.NodeID, name string) lock.Held {
	g.t.Helper()
	h, err := g.mutex(id, name).Acquire(g.t.Context())
	require.NoError(g.t, err)
	return h
}

// outcome is the result of an Acquire in the background.
type outcome struct {
	held lock.Held
	err  error
}

func (g *group) acquireLater(ctx context.Context, id dmutex.NodeID, name string) <-chan outcome {
	c := make(chan outcome, 1)
	go func() {
		h, err := g.mutex(id, name).Acquire(ctx)
		c <- outcome{h, err}
	}()
	synctest.Wait()
	return c
}

// nameAt returns the name of a lock with that home.
func nameAt(home dmutex.NodeID, members []dmutex.NodeID) string {
	for i := 0; ; i++ {
		if name := fmt.Sprint("lock ", i); locks.Home(name, members) == home {
			return name
		}
	}
}

// counter is the part of a fence that counts within the epoch.
func counter(fence uint64) uint32 {
	return uint32(fence - epochs.First(epochs.Of(fence)))
}
