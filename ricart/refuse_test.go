package ricart

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// The same of what only nodes that share send: nobody inquires about a request that shares.
func TestRefusesShared(t *testing.T) {
	m, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: 4})
	require.NoError(t, err)
	_, err = m.(dmutex.Sharer).Share() // number 5
	require.NoError(t, err)
	before, _ := m.AppendText(nil)
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Inquire, From: 2, To: 1, Attempt: 5})
	require.ErrorIs(t, err, dmutex.ErrPeer)
	require.ErrorContains(t, err, "the request shares")
	_, err = m.Handle(dmutex.Message{Kind: dmutex.Release, From: 2, To: 1, Attempt: 5})
	require.NoError(t, err, "it is not deferred")
	after, _ := m.AppendText(nil)
	require.Equal(t, string(before), string(after))
}

// A message that no correct peer sends is refused, and one that is repeated or late is
// ignored. Neither changes anything.
func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		kind    dmutex.Kind
		attempt uint64
		why     string // "" if it is ignored
	}{
		{kind: dmutex.Reply, attempt: 6, why: "it answers a request that was never made"},
		{kind: dmutex.Reply, attempt: 4},
		{kind: dmutex.Yield, attempt: 5, why: "Ricart-Agrawala has no such message"},
		{kind: dmutex.Token, attempt: 5, why: "Ricart-Agrawala has no such message"},
	} {
		for _, algorithm := range []dmutex.Algorithm{New, Carvalho} {
			m, err := algorithm(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: 4})
			require.NoError(t, err)
			_, err = m.Request() // number 5
			require.NoError(t, err)
			before, _ := m.AppendText(nil)
			out, err := m.Handle(dmutex.Message{Kind: tt.kind, From: 2, To: 1, Attempt: tt.attempt})
			if tt.why == "" {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, dmutex.ErrPeer)
				require.ErrorContains(t, err, tt.why)
			}
			require.Empty(t, out)
			after, _ := m.AppendText(nil)
			require.Equal(t, string(before), string(after))
		}
	}
}
