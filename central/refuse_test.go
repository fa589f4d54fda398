package central

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A RELEASE answers a GRANT: of a request that waits there is none.
func TestReleaseOfWaiting(t *testing.T) {
	m, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3), Holder: 2})
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 1})
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Release, From: 3, To: 1, Attempt: 1})
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.ErrorContains(t, err, "was not granted")
}

func TestCoordinatorMustBeMember(t *testing.T) {
	_, err := At(4)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "4 is not among")
}
