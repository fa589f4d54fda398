package node_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/lock/fence"
	"github.com/dmutex/dmutex/lock/locktest"
	"github.com/dmutex/dmutex/lock/semaphore"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/channel"
	"github.com/dmutex/dmutex/transport/memlink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A nil context, a nil function and what no Node has made are mistakes of the caller, and said in words.
func TestNil(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	var none context.Context
	ctx := t.Context()
	_, err = node.Open(none, new(store.Memory), net.Link(dmutex.None), node.Config{})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	_, err = node.OpenStrict(none, 1, []dmutex.NodeID{1}, net.Link(1), node.Config{})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	n, err := node.OpenStrict(ctx, 2, []dmutex.NodeID{2}, net.Link(2), node.Config{})
	require.NoError(t, err)
	defer func() { require.NoError(t, n.Close(ctx)) }()
	m, e := n.Mutex("x"), n.Election("x")
	for name, call := range map[string]func() error{
		"Acquire":                    func() error { _, err := m.Acquire(none); return err },
		"TryAcquire":                 func() error { _, err := m.TryAcquire(none); return err },
		"Shared":                     func() error { _, err := m.Shared().Acquire(none); return err },
		"Do":                         func() error { return m.Do(none, func(context.Context, uint64) error { return nil }) },
		"Do, function":               func() error { return m.Do(ctx, nil) },
		"Campaign":                   func() error { return e.Campaign(none, func(context.Context, uint64) error { return nil }) },
		"Campaign, function":         func() error { return e.Campaign(ctx, nil) },
		"Ask":                        func() error { return m.Ask(none) },
		"Holder":                     func() error { _, err := m.Holder(none); return err },
		"Txn":                        func() error { _, err := n.Txn().Acquire(none, "y"); return err },
		"AcquireAll":                 func() error { _, err := n.AcquireAll(none, "y"); return err },
		"Ready":                      func() error { return n.Ready(none) },
		"Evict":                      func() error { return n.Evict(none, 1) },
		"Close":                      func() error { return n.Close(none) },
		"zero Mutex":                 func() error { _, err := new(node.Mutex).Acquire(ctx); return err },
		"zero Node":                  func() error { _, err := new(node.Node).Mutex("x").Acquire(ctx); return err },
		"zero Node, Ask":             func() error { return new(node.Node).Mutex("x").Ask(ctx) },
		"zero Node, Ready":           func() error { return new(node.Node).Ready(ctx) },
		"zero Node, Evict":           func() error { return new(node.Node).Evict(ctx, 1) },
		"zero Node, Close":           func() error { return new(node.Node).Close(ctx) },
		"zero tcplink.Link":          func() error { return new(tcplink.Link).Open(transport.Host{}) },
		"zero tcplink.Link, Become":  func() error { return new(tcplink.Link).Become(1) },
		"zero tcplink.Link, Trouble": func() error { return new(tcplink.Link).Trouble(1) },
		"nil certificate":            func() error { _, err := tcplink.NodeOf(nil); return err },
		"zero Channels":              func() error { return new(channel.Channels).Close(ctx) },
		"zero Channels, Do":          func() error { return new(channel.Channels).Do("x", nil) },
		"zero locktest.Lock":         func() error { _, err := new(locktest.Lock).Acquire(ctx); return err },
		"nil locktest.Lock":          func() error { _, err := (*locktest.Lock)(nil).TryAcquire(ctx); return err },
		"zero locktest.Lock, Shared": func() error { _, err := new(locktest.Lock).Shared().Acquire(ctx); return err },
		"zero Semaphore":             func() error { _, err := new(semaphore.Semaphore).Acquire(ctx); return err },
		"zero Semaphore, Try":        func() error { _, err := new(semaphore.Semaphore).TryAcquire(ctx); return err },
		"zero Permit":                func() error { return new(semaphore.Permit).Release() },
		"zero Node, Status":          func() error { return new(node.Node).Status().Err },
		"zero Txn":                   func() error { _, err := new(node.Txn).Acquire(ctx, "x"); return err },
	} {
		require.ErrorIs(t, call(), dmutex.ErrMisuse, name)
	}
	_, err = new(client.Client).Mutex("x").Acquire(ctx)
	require.ErrorContains(t, err, "the client was not made by New")
	require.ErrorContains(t, new(client.Client).Ready(ctx), "the client was not made by New")
	require.Zero(t, new(client.Client).Status())
	require.NoError(t, new(client.Client).Close())
	require.NoError(t, new(tcplink.Link).Close())
	require.Nil(t, new(tcplink.Link).Addr())
	require.Zero(t, new(node.Mutex).Status())
	require.Equal(t, "node: ", new(node.Error).Error())
	new(node.Election).Resign()
	for range new(node.Election).Observe(ctx) {
		t.Fatal("a zero Election has a leader")
	}
	require.Equal(t, dmutex.None, new(node.Node).Self())
	<-new(node.Node).Done()
	for range new(node.Node).Locks() {
		t.Fatal("a zero Node has locks")
	}
	lost := new(locktest.Lock)
	lost.Fail(nil)
	lost.Lose(nil)
	lost.Suspend(0)
	require.Empty(t, lost.Name()+strings.Join(lost.History(), ""))
	var gate *fence.Gate
	for _, err := range []error{gate.Admit(1), gate.Do(1, nil), gate.Share(1, nil)} {
		require.ErrorContains(t, err, "fence: the gate is nil")
	}
	require.Zero(t, gate.Seen())
	links := new(memlink.Network)
	links.Partition([]dmutex.NodeID{1})
	links.Cut(1, 2)
	links.Pause(1)
	links.Resume(1)
	links.Heal()
	require.NoError(t, links.Link(1).Close())
	for range new(node.Election).Observe(ctx) {
		t.Fatal("it yields")
	}
	for range e.Observe(none) {
		t.Fatal("it yields")
	}
}

// A listener serves one node.
func TestListenerOfTwoNodes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	links, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	s := new(store.Memory)
	open := func(listeners ...net.Listener) (*node.Node, error) {
		return node.Open(t.Context(), s, links.Link(dmutex.None), node.Config{Clients: &node.Clients{Listeners: listeners}})
	}
	_, err = open(l, l)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	n, err := open(l) // which the error has left alone
	require.NoError(t, err)
	_, err = open(l)
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, l.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_ = n.Close(ctx)
}

// A call that waits for a hold of its own process says so, also if that shares the lock: there is no upgrade.
func TestBusyByThisProcess(t *testing.T) {
	bubble(t, strict, nil, memlink.Config{}, func(t *testing.T, g *group) {
		for i, s := range g.open(2) { // of one lock they are the home and not, and of the other
			name := "xy"[i : i+1]
			h := g.share(s.id, name)
			_, err := s.Mutex(name).TryAcquire(t.Context())
			require.EqualError(t, err, `node: lock "`+name+`": lock is busy: shared by this process`)
			require.NoError(t, h.Release())
		}
	})
}

// The error of each call whose context ends matches both the error and the cause of the context.
func TestCause(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		signal := errors.New("terminated by a signal")
		requireCause := func(name string, call func(context.Context) error) {
			t.Helper()
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second/2, func() { cancel(signal) })
			for range 2 { // at the second call the context has ended before
				err := call(ctx)
				require.ErrorIs(t, err, context.Canceled, name)
				require.ErrorIs(t, err, signal, name)
				require.ErrorContains(t, err, "context canceled: terminated by a signal", name)
			}
		}
		acquire := func(m *node.Mutex) func(context.Context) error {
			return func(ctx context.Context) error {
				_, err := m.Acquire(ctx)
				return err
			}
		}
		requireCause("Open", func(ctx context.Context) error {
			<-ctx.Done()
			_, err := node.OpenStrict(ctx, 1, g.members, g.net.Link(1), node.Config{Algorithm: g.algorithm})
			return err
		})
		held := g.acquire(1, "x")
		requireCause("Acquire", acquire(g.mutex(2, "x")))
		require.NoError(t, held.Release())

		g.crash(3)
		for _, other := range []dmutex.NodeID{1, 2} {
			g.net.Cut(3, other)
		}
		n := g.start(3)
		requireCause("Acquire of a node in no view", acquire(n.Mutex("x")))
		requireCause("TryAcquire", func(ctx context.Context) error {
			_, err := n.Mutex("x").TryAcquire(ctx)
			return err
		})
		requireCause("Ready", n.Ready)
		requireCause("Ask", n.Mutex("x").Ask)
		requireCause("Evict", func(ctx context.Context) error { return g.node(1).Evict(ctx, 2) })
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(signal)
		err := g.node(1).Close(ctx)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, signal)
	})
}

// LESSONS L26: each reason has an error of its own.
func TestReasonsDiffer(t *testing.T) {
	reasons := []error{
		node.ErrBusy, node.ErrReleased, node.ErrLost, node.ErrStopped, node.ErrClosed, node.ErrConfig,
		node.ErrNumberTaken, node.ErrReplaced, node.ErrEvicted,
		node.ErrOverflow, node.ErrDeadlock, node.ErrNotElected, node.ErrResigned,
		dmutex.ErrMisuse, dmutex.ErrPeer, dmutex.ErrExhausted, context.Canceled, context.DeadlineExceeded,
	}
	for i, a := range reasons {
		for j, b := range reasons {
			require.Equal(t, i == j, errors.Is(a, b), "%v, %v", a, b)
		}
	}
}
