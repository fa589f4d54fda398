package maekawa

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// TestOutdatedYield: a YIELD of a request that no longer has the vote is ignored, also
// when a later request of its node waits. Only one of the request that has the vote
// would be a mistake then.
func TestOutdatedYield(t *testing.T) {
	m, err := With(rows{{1, 2}, {1, 2}, {1, 2}}.of)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.NoError(t, err)
	for _, msg := range []dmutex.Message{
		{Kind: dmutex.Request, From: 3, To: 1, Attempt: 5}, // has the vote
		{Kind: dmutex.Request, From: 2, To: 1, Attempt: 9}, // waits
	} {
		_, err := m.Handle(msg)
		require.NoError(t, err)
	}
	before := text(m.(*Machine))
	out, err := m.Handle(dmutex.Message{Kind: dmutex.Yield, From: 2, To: 1, Attempt: 8})
	require.NoError(t, err)
	require.Empty(t, out)
	require.Equal(t, before, text(m.(*Machine)))
}
