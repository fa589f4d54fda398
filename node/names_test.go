package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Each member knows the names of the others, even after one of them has restarted with another
// name, and errors contain the names.
func TestMemberNames(t *testing.T) {
	bubble(t, strict, central.At(1), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		time.Sleep(time.Second)
		for _, n := range g.all {
			id := n.id
			st := n.Status()
			require.Equal(t, fmt.Sprint("web-", id), st.Name)
			for _, p := range st.Peers {
				require.Equal(t, fmt.Sprint("web-", p.ID), p.Name)
				require.Empty(t, p.Address)
			}
		}
		g.crash(3)
		g.startWith(3, node.Config{Algorithm: g.algorithm, Name: "web-new"})
		held := g.acquire(3, "x")
		_, err := g.mutex(1, "x").TryAcquire(t.Context())
		require.EqualError(t, err, `node: lock "x": lock is busy: held by web-new (node 3) for 0s`)
		_, err = g.mutex(1, "x").Acquire(nodetest.ContextFor(t, 10*time.Millisecond))
		require.ErrorContains(t, err, "waiting for 3 (web-new, heard just now): held by web-new (node 3) for 0s")
		_, err = g.mutex(1, "x").Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorContains(t, err, "held by web-new (node 3) for 1s: context deadline exceeded")
		require.ErrorContains(t, err, "waiting for 3 (web-new, silent for")
		require.NoError(t, held.Release())
	})
}

// OpenStrict refuses a name that cannot be shown.
func TestMemberNamesMisuse(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	for _, name := range []string{"two\nlines", "\x1b[31m", "\u202eleft", "\xff", strings.Repeat("n", 65)} {
		_, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Name: name})
		require.ErrorIs(t, err, dmutex.ErrMisuse, "%q", name)
	}
	n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Name: "Büro 7"})
	require.NoError(t, err)
	require.NoError(t, n.Close(context.Background()))
}
