package node_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/ricart"
)

// In the lease mode the record has the names of all members.
func TestLeaseNames(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		for range 2 {
			g.join()
		}
		for _, s := range g.all {
			require.NoError(t, s.Ready(t.Context()))
		}
		time.Sleep(leaseOf / 10)
		for _, n := range g.all {
			st := n.Status()
			require.Contains(t, st.Name, "/", "the host and the process")
			require.Equal(t, fmt.Sprintf("%s (%d)", st.Name, st.Peers[0].ID), st.Peers[0].Name, "both have one name")
		}
		value, _, err := g.store.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(value), fmt.Sprintf(" %q\n", g.all[0].Status().Name)))
	})
}
