package integration

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
)

// In a cluster of servers the death of a process is seen by the servers' word, and not only by its
// silence: the others exclude it after a fifth of a lease, and not after almost half of one, and what it
// held is free after 1.2 leases. While all live, they ask nothing, if the machine is quiet.
func TestNATSDeath(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("a measurement: set DMUTEX_LONG=1")
	}
	const lease = 10 * time.Second
	servers := startJetStreamCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var nodes []*node.Node
	var conns []*nats.Conn
	log := new(journal)
	for _, s := range servers {
		nc := connect(t, s)
		var n *node.Node
		for n == nil { // until the servers have elected a leader, and this one knows where the bucket is
			brief, cancel := context.WithTimeout(ctx, time.Second)
			n, _ = natsnode.Open(brief, nc, "invoices", node.Config{Lease: lease, Logger: log.logger()})
			cancel()
			require.NoError(t, ctx.Err())
		}
		nodes, conns = append(nodes, n), append(conns, nc)
		require.NoError(t, n.Ready(ctx))
	}
	closeNode(t, nodes[0])
	closeNode(t, nodes[1])
	members := func(n int) func() bool {
		return func() bool { return len(nodes[0].Status().View.Members) == n }
	}
	eventually(t, "not all are members", members(3))
	spied, err := connect(t, servers[0]).SubscribeSync("dmutex.invoices.>")
	require.NoError(t, err)
	frames, questions := 0, 0
	quiet, stop := context.WithTimeout(ctx, lease/2) // connections that are newer than a third of a lease are no witnesses
	defer stop()
	for {
		m, err := spied.NextMsgWithContext(quiet)
		if err != nil {
			require.ErrorIs(t, err, context.DeadlineExceeded)
			break
		}
		if frames++; m.Reply != "" {
			questions++
		}
	}
	require.NotContains(t, log.String(), "no process subscribes")
	t.Logf("%d frames, %d questions", frames, questions)
	require.Positive(t, frames)
	require.Zero(t, questions)

	require.NoError(t, spied.Unsubscribe()) // nobody else may take the questions
	require.NoError(t, conns[0].Flush())

	_, err = nodes[2].Mutex("held").Acquire(ctx)
	require.NoError(t, err)
	began := time.Now()
	conns[2].Close() // as the kernel does for a process that was killed
	eventually(t, "the dead member is not excluded", members(2))
	took := time.Since(began)
	t.Logf("excluded after %v", took)
	require.Contains(t, log.String(), "natslink: no process subscribes for the peer anymore")
	require.Less(t, took, lease*2/5)
	for i, n := range []*node.Node{nodes[0], nodes[1], nodes[0], nodes[1]} { // at home with each, most likely
		h, err := n.Mutex(strconv.Itoa(i)).Acquire(ctx)
		require.NoError(t, err)
		require.NoError(t, h.Release())
	}
	t.Logf("the locks that it did not hold are granted after %v", time.Since(began))
	require.Less(t, time.Since(began), lease*2/5)
	_, err = nodes[0].Mutex("held").Acquire(ctx)
	require.NoError(t, err)
	t.Logf("the lock that it held is granted after %v", time.Since(began))
	require.Less(t, time.Since(began), lease*27/20)
	brief, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	require.Error(t, nodes[2].Close(brief))
}
