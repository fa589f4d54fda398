package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/natslink"
)

// Under every algorithm, a cycle of transactions through five nodes on one NATS
// server is found and has one victim. When the victim has released its locks, every
// other transaction gets the lock that it waits for.
func TestDeadlockOverNATS(t *testing.T) {
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			s := open(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			members := dmutextest.Nodes(5)
			var nodes []*node.Node
			var txns []*node.Txn
			for _, self := range members {
				link, err := natslink.New(connect(t, s), natslink.Config{Self: self, Prefix: prefix})
				require.NoError(t, err)
				n, err := node.OpenStrict(ctx, self, members, link, node.Config{
					Algorithm: a.Algorithm, Deadlock: 20 * time.Millisecond,
				})
				require.NoError(t, err)
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), patience)
					defer cancel()
					require.NoError(t, n.Close(ctx))
				})
				nodes, txns = append(nodes, n), append(txns, n.Txn())
			}
			for i, txn := range txns {
				_, err := txn.Acquire(ctx, fmt.Sprint(i))
				require.NoError(t, err)
			}
			errs := make(chan error)
			for i, txn := range txns {
				go func() {
					_, err := txn.Acquire(ctx, fmt.Sprint((i+1)%len(txns)))
					errs <- errors.Join(txn.Release(), err)
				}()
			}
			victims := 0
			for range txns {
				if err := <-errs; err != nil {
					var cycle *node.Error
					require.ErrorAs(t, err, &cycle)
					require.Len(t, cycle.Cycle, len(txns))
					victims++
				}
			}
			require.Equal(t, 1, victims)
			for _, n := range nodes { // no lock is still held, and no withdrawn request blocks one
				for i := range nodes {
					h, err := n.Mutex(fmt.Sprint(i)).Acquire(ctx)
					require.NoError(t, err)
					require.NoError(t, h.Release())
				}
			}
		})
	}
}
