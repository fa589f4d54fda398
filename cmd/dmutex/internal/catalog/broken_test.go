package catalog

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// The broken machine enters on N-2 replies.
func TestBrokenMachine(t *testing.T) {
	m, err := newHasty(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1, 2, 3}})
	require.NoError(t, err)
	out, err := m.Request()
	require.NoError(t, err)
	require.Len(t, out, 2)
	require.Equal(t, dmutex.Waiting, m.Phase())
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Reply, From: 3, To: 1, Attempt: out[1].Attempt})
	require.NoError(t, err)
	require.Equal(t, dmutex.Held, m.Phase())
}
