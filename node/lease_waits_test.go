package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
)

// If the group had another lease, a process waits for the former leases before it joins, and its
// errors say so. In an outage they say that the store does not answer.
func TestLeaseWaitsToJoin(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		all := g.open(2)
		one, two := all[0], all[1]
		two.crash()
		one.sees(1)
		one.close()
		s := g.join(func(c *node.Config) { c.Lease = leaseOf / 5 })
		err := s.Ready(nodetest.ContextFor(t, 3*time.Second))
		require.ErrorContains(t, err, "node: waiting until the leases of former members, if there were any, have ended: at most 7.")
		require.Zero(t, s.Status().View.Epoch, "it has not joined")
		require.ErrorContains(t, s.Status().View.Err, "waiting until the leases")
		s.store.Outage(true)
		require.ErrorIs(t, s.Ready(nodetest.ContextFor(t, 8*time.Second)), node.ErrStore)
		s.store.Outage(false)
		require.NoError(t, s.Ready(t.Context()))
	})
}

// The beginning of a wait for leases is logged only once. A process that joins hears from the
// members whether there is a wait.
func TestLeaseWaitIsLoggedOnce(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		var logs [3]nodetest.Journal
		for i := range logs {
			g.log = logs[i].Logger()
			s := g.join()
			if i == 0 {
				time.Sleep(leaseOf / 5) // the next one joins while this one waits
			} else {
				require.NoError(t, s.Ready(t.Context()))
			}
		}
		time.Sleep(time.Minute)
		for i, count := range []int{1, 0, 0} {
			require.Equal(t, count, strings.Count(strings.Join(logs[i].Take(), "\n"), "msg=waiting node="+g.all[i].Self().String()+" waited=0s "), i)
		}
	})
}
