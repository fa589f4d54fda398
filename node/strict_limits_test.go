package node_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// OpenStrict refuses more members than there can be, and says what to do instead.
func TestTooManyMembers(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	var members []dmutex.NodeID
	for id := range dmutex.NodeID(membership.MaxMembers + 1) {
		members = append(members, id+1)
	}
	_, err = node.OpenStrict(context.Background(), 1, members, net.Link(1), node.Config{Algorithm: algorithms.All[0].Algorithm})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "a group has at most 64 members, not 65: let fewer processes be members, and take locks for the others")
}
