package node_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// tcpGroup opens n nodes over TCP on the loopback interface.
func tcpGroup(b testing.TB, a dmutex.Algorithm, n int, deadlock time.Duration) []*node.Node {
	b.Helper()
	var (
		members []dmutex.NodeID
		links   []*tcplink.Link
		nodes   []*node.Node
	)
	for id := range dmutex.NodeID(n) {
		members = append(members, id+1)
	}
	peers := make(map[dmutex.NodeID]string)
	for _, id := range members {
		peers[id] = ""
	}
	for _, id := range members {
		l, err := tcplink.New(tcplink.Config{Self: id, Listen: "127.0.0.1:0", Peers: peers})
		require.NoError(b, err)
		links = append(links, l)
	}
	for i, l := range links {
		for j, id := range members {
			if i != j {
				require.NoError(b, l.SetPeer(id, links[j].Addr().String()))
			}
		}
		n, err := node.OpenStrict(b.Context(), members[i], members, l, node.Config{Algorithm: a, Deadlock: deadlock})
		require.NoError(b, err)
		nodes = append(nodes, n)
	}
	for _, n := range nodes {
		require.NoError(b, n.Ready(b.Context()))
	}
	b.Cleanup(func() { closeAll(b, nodes) })
	return nodes
}

// A cycle through three nodes over TCP has one victim. Once the victim has released its locks, all
// others get theirs.
func TestCycleOverTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			nodes := tcpGroup(t, a.Algorithm, 3, 5*time.Millisecond)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var txns []*node.Txn
			for i, n := range nodes {
				txn := n.Txn()
				_, err := txn.Acquire(ctx, fmt.Sprint(i))
				require.NoError(t, err)
				txns = append(txns, txn)
			}
			errs := make(chan error)
			for i, txn := range txns {
				go func() {
					_, err := txn.Acquire(ctx, fmt.Sprint((i+1)%3))
					errs <- errors.Join(txn.Release(), err)
				}()
			}
			victims := 0
			for range txns {
				if err := <-errs; err != nil {
					require.ErrorIs(t, err, node.ErrDeadlock)
					victims++
				}
			}
			require.Equal(t, 1, victims)
			for _, n := range nodes { // no lock is still held, and no withdrawn request is in the way
				for i := range nodes {
					h, err := n.Mutex(fmt.Sprint(i)).Acquire(ctx)
					require.NoError(t, err)
					require.NoError(t, h.Release())
				}
			}
		})
	}
}
