package node_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/node"
)

// With a store, two members come and go. The store is no faster than the network. Otherwise a
// newcomer that is the home of the lock could take the lock and leave, again and again, before a
// request of another member reaches it.
func TestOthersComeAndGoWithAStore(t *testing.T) {
	eachLease(t, func(t *testing.T, g *leaseGroup) {
		s := outagetest.New(t, distantStore{&g.store, 2 * time.Millisecond}, outagetest.Faults{})
		open := func() (*node.Node, error) {
			m := &member{group: g}
			return node.Open(t.Context(), s, m.newLink(), g.config(m))
		}
		one, err := open()
		require.NoError(t, err)
		require.NoError(t, one.Ready(t.Context()))
		nodetest.Stays(t, one, 2, open)
		require.NoError(t, one.Close(t.Context()))
	})
}
