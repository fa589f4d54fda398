package suzukikasami

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A TOKEN that no correct peer sends is refused, and one that is repeated is dropped.
// Neither changes anything.
func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		attempt uint64
		numbers []uint64
		nodes   []dmutex.NodeID
		why     string // "" for one that is dropped
	}{
		{attempt: 6, numbers: []uint64{6, 0, 0}, nodes: []dmutex.NodeID{2}, why: "never made"},
		{attempt: 0, numbers: []uint64{0, 0, 0}, why: "names no request"},
		{attempt: 5, why: "one number for each"},
		{attempt: 5, numbers: []uint64{5, 0}, why: "one number for each"},
		{attempt: 5, numbers: []uint64{5, 0, 0, 0}, why: "one number for each"},
		{attempt: 5, numbers: []uint64{4, 0, 0}, why: "another request"},
		{attempt: 5, numbers: []uint64{5, 0, 1<<61 + 1}, why: "beyond"},
		{attempt: 5, numbers: []uint64{5, 0, 0}, nodes: []dmutex.NodeID{3, 4}, why: "different other members"},
		{attempt: 5, numbers: []uint64{5, 0, 0}, nodes: []dmutex.NodeID{3, 3}, why: "different other members"},
		{attempt: 5, numbers: []uint64{5, 0, 0}, nodes: []dmutex.NodeID{1}, why: "different other members"},
		{attempt: 4, numbers: []uint64{4, 0, 0}},
	} {
		born, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3), Home: 2, Clock: 4})
		require.NoError(t, err)
		_, err = born.Request() // number 5
		require.NoError(t, err)
		m := born.(*machine)
		before, _ := m.AppendText(nil)
		_, err = m.Handle(dmutex.Message{
			Kind: dmutex.Token, From: 2, To: 1, Attempt: tt.attempt, Numbers: tt.numbers, Nodes: tt.nodes,
		})
		if tt.why == "" {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, dmutex.ErrPeer)
			require.ErrorContains(t, err, tt.why)
		}
		after, _ := m.AppendText(nil)
		require.Equal(t, string(before), string(after))
	}
}
