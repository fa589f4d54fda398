package suzukikasami_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/suzukikasami"
)

// TestTextAtRest: a machine at rest tells what it knows, and stays at rest.
func TestTextAtRest(t *testing.T) {
	born, err := suzukikasami.New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.NoError(t, err)
	m := born.(dmutextest.Machine)
	_, err = m.Request()
	require.NoError(t, err)
	_, err = m.Release()
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 3, To: 1, Attempt: 1}) // the token goes
	require.NoError(t, err)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 4})
	require.NoError(t, err)
	before := m.Clone()
	for range 2 {
		text, err := m.AppendText(nil)
		require.NoError(t, err)
		require.Equal(t, "suzukikasami 1 idle clock=1 known=1 rn=1,4,1", string(text))
		require.Equal(t, before, m.Clone(), "it has woken up")
	}
}
