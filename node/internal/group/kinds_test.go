package group

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/membership/consent"
	"github.com/dmutex/dmutex/internal/membership/lease"
)

// Each kind of message about views has a row in the table of a machine: a kind that is in neither would be refused
// by all peers.
func TestEachKindIsTaken(t *testing.T) {
	inStrict, err := consent.New(consent.Config{Self: 1, Members: []dmutex.NodeID{1, 2}, Life: 1})
	require.NoError(t, err)
	inStrict.Met(0, 2, 2)
	inLease, err := lease.New(lease.Config{Life: 1, Lease: leases.Default})
	require.NoError(t, err)
	knows := func(_ membership.Output, err error) bool {
		if err == nil {
			return true
		}
		require.ErrorIs(t, err, dmutex.ErrPeer)
		return !strings.Contains(err.Error(), "its kind is")
	}
	for kind := range membership.Kinds + 1 {
		msg := membership.Message{Kind: kind, From: 2, To: 1}
		require.Equal(t, kind > 0 && kind < membership.Kinds, knows(inStrict.Handle(0, msg)) || knows(inLease.Handle(0, msg)), "kind %d", kind)
	}
}
