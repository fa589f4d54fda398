package node_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// leaseOf is the lease in these tests.
const leaseOf = 10 * time.Second

// A leaseGroup is a group with a store.
type leaseGroup struct {
	t         *testing.T
	net       *memlink.Network
	store     store.Memory
	algorithm dmutex.Algorithm
	deadlock  time.Duration
	prove     func(store.Store) store.Store // wraps the store of a process, unless this is nil
	log       *slog.Logger
	trace     *trace.Recorder // of the next process
	name      string          // likewise
	clients   *node.Clients   // likewise
	all       []*member
}

// A member is a node with a link and a store that can be cut off.
type member struct {
	*node.Node
	group  *leaseGroup
	store  *outagetest.Store
	link   transport.DynamicLink
	cut    atomic.Bool
	told   told
	mu     sync.Mutex
	states []node.LeaseState
	holds  []node.Event
}

// cuttable is a link that can be cut off, and records what it was told.
type cuttable struct {
	outagetest.Link
	told *told
}

// told is what a link was told.
type told struct {
	mu     sync.Mutex
	selves []dmutex.NodeID
	peers  map[dmutex.NodeID]bool
}

func (l cuttable) Become(self dmutex.NodeID) error {
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	l.told.selves, l.told.peers = append(l.told.selves, self), make(map[dmutex.NodeID]bool)
	return l.DynamicLink.Become(self)
}

func (l cuttable) SetPeer(id dmutex.NodeID, address string) error {
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	l.told.peers[id] = true
	return l.DynamicLink.SetPeer(id, address)
}

func (l cuttable) RemovePeer(id dmutex.NodeID) {
	l.told.mu.Lock()
	defer l.told.mu.Unlock()
	delete(l.told.peers, id)
	l.DynamicLink.RemovePeer(id)
}

// eachLease runs a test with every algorithm, or with some where tests are to be quick.
func eachLease(t *testing.T, test func(t *testing.T, g *leaseGroup)) {
	for _, a := range algorithms.Some() {
		t.Run(a.Name, func(t *testing.T) { bubbleLease(t, a.Algorithm, test) })
	}
}

func bubbleLease(t *testing.T, algorithm dmutex.Algorithm, test func(t *testing.T, g *leaseGroup)) {
	synctest.Test(t, func(t *testing.T) {
		nodetest.Today()
		net, err := memlink.New(memlink.Config{MinDelay: time.Millisecond, MaxDelay: time.Millisecond})
		require.NoError(t, err)
		g := &leaseGroup{t: t, net: net, algorithm: algorithm}
		defer func() {
			for len(g.all) > 0 {
				g.all[0].close()
			}
		}()
		test(t, g)
	})
}

// start adds a process.
func (g *leaseGroup) start() *member {
	s := &member{group: g, store: outagetest.New(g.t, &g.store, outagetest.Faults{})}
	var err error
	way := store.Store(s.store)
	if g.prove != nil {
		way = g.prove(way)
	}
	s.Node, err = node.Open(g.t.Context(), way, s.newLink(), g.config(s))
	require.NoError(g.t, err)
	g.all = append(g.all, s)
	return s
}

// newLink makes the link of a process.
func (s *member) newLink() transport.DynamicLink {
	s.link = cuttable{outagetest.Link{DynamicLink: s.group.net.Link(dmutex.None), Cut: &s.cut}, &s.told}
	return s.link
}

func (g *leaseGroup) config(s *member) node.Config {
	return node.Config{
		Name: g.name, Algorithm: g.algorithm, Deadlock: g.deadlock, Lease: leaseOf, Logger: g.log, Trace: g.trace, Clients: g.clients,
		Observer: &node.Observer{
			Lease: func(l node.LeaseStatus) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.states = append(s.states, l.State)
			},
			Hold: func(h node.Event) {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.holds = append(s.holds, h)
			},
		},
	}
}

// open starts n processes, and waits until they are one group.
func (g *leaseGroup) open(n int) []*member {
	for range n {
		g.start()
	}
	for _, s := range g.all {
		for len(s.Status().View.Members) < n || !s.Status().View.Acts {
			time.Sleep(leaseOf / 100)
		}
	}
	return g.all
}

// isolate cuts a process off from the others and from the store.
func (s *member) isolate(on bool) {
	s.cut.Store(on)
	s.store.Outage(on)
}

// crash ends a process without a farewell.
func (s *member) crash() {
	s.isolate(true)
	began := time.Now()
	s.close()
	require.Less(s.group.t, time.Since(began), time.Second) // Close does not wait for the store
}

func (s *member) close() {
	s.group.all = slices.DeleteFunc(s.group.all, func(o *member) bool { return o == s })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dead := s.cut.Load() || s.group.t.Failed()
	if dead {
		cancel()
	}
	if err := s.Close(ctx); !dead && !errors.Is(err, node.ErrRecord) {
		require.NoError(s.group.t, err)
	}
}

func (s *member) acquire(name string) lock.Held {
	s.group.t.Helper()
	h, err := s.Mutex(name).Acquire(s.group.t.Context())
	require.NoError(s.group.t, err)
	return h
}

// outcome is the result of an Acquire in the background.
type outcome struct {
	held lock.Held
	err  error
}

func (s *member) acquireLater(ctx context.Context, name string) <-chan outcome {
	out := make(chan outcome, 1)
	go func() {
		h, err := s.Mutex(name).Acquire(ctx)
		out <- outcome{h, err}
	}()
	synctest.Wait()
	return out
}
