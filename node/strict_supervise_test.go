package node_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Done is closed by Close, and when the node stops by itself.
func TestDone(t *testing.T) {
	bubble(t, strict, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		for _, n := range g.all {
			select {
			case <-n.Done():
				t.Fatal("the node is done")
			default:
			}
		}
		g.net.Partition([]dmutex.NodeID{1}, []dmutex.NodeID{2, 3})
		require.NoError(t, g.node(2).Evict(t.Context(), 1))
		g.net.Heal()
		held := g.acquire(2, "x") // so that frames are exchanged
		go func() { _, _ = g.mutex(1, "x").Acquire(t.Context()) }()
		<-g.node(1).Done()
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrStopped)
		require.ErrorIs(t, g.node(1).Status().Err, node.ErrEvicted)
		require.NoError(t, held.Release())

		require.NoError(t, g.node(3).Close(t.Context()))
		<-g.node(3).Done()
		require.ErrorIs(t, g.node(3).Status().Err, node.ErrClosed)
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
			time.AfterFunc(time.Second, func() { cancel(signal) })
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
