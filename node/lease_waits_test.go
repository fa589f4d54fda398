package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/store/storetest"
)

// A process that waits for leases before it joins, because the group had another lease, says
// so, and one that cannot join says that the store does not answer.
func TestLeaseWaitsToJoin(t *testing.T) {
	withCrew(t, ricart.New, func(t *testing.T, c *crew) {
		all := c.open(2)
		one, two := all[0], all[1]
		two.kill()
		for len(one.Status().View.Members) > 1 {
			time.Sleep(leaseOf / 100)
		}
		one.close()
		s := &sailor{crew: c, store: storetest.Faulty(t, &c.store, storetest.Faults{})}
		config := c.config(s)
		config.Lease = leaseOf / 5
		var err error
		s.Node, err = node.Open(t.Context(), config)
		require.NoError(t, err)
		c.all = append(c.all, s)
		err = s.Ready(contextFor(t, 3*time.Second))
		require.ErrorContains(t, err, "node: waiting until the leases of former members, if there were any, have ended: at most 7.")
		require.Zero(t, s.Status().View.Epoch, "it has not joined")
		require.ErrorContains(t, s.Status().View.Err, "waiting until the leases")
		s.store.Outage(true)
		require.ErrorIs(t, s.Ready(contextFor(t, 8*time.Second)), node.ErrStore)
		s.store.Outage(false)
		require.NoError(t, s.Ready(t.Context()))
	})
}
