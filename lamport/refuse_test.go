package lamport

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A message that no correct peer sends is refused, whatever this node does.
func TestRefuses(t *testing.T) {
	for _, tt := range []struct {
		msg dmutex.Message
		why string
	}{
		{dmutex.Message{Kind: dmutex.Request, Attempt: 2, Clock: 3}, "sent at the time"},
		{dmutex.Message{Kind: dmutex.Request, Attempt: 9, Clock: 9}, "still in the queue"},
		{dmutex.Message{Kind: dmutex.Reply, Attempt: 2, Clock: 2}, "not later"},
		{dmutex.Message{Kind: dmutex.Reply, Attempt: 8, Clock: 9}, "never made"},
		{dmutex.Message{Kind: dmutex.Release, Attempt: 2, Clock: 2}, "not later"},
		{dmutex.Message{Kind: dmutex.Token, Clock: 2}, "no such message"},
	} {
		m, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2), Clock: 4})
		require.NoError(t, err)
		_, err = m.Handle(dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 2, Clock: 2})
		require.NoError(t, err)
		tt.msg.From, tt.msg.To = 2, 1
		_, err = m.Handle(tt.msg)
		require.ErrorIs(t, err, dmutex.ErrPeer)
		require.ErrorContains(t, err, tt.why)
	}
}

// A REQUEST that is repeated while it is in the queue, and a RELEASE that is
// not about the request there, change no queue and are not answered.
func TestRepeated(t *testing.T) {
	born, err := New(dmutex.Start{Self: 1, Members: dmutextest.Nodes(2)})
	require.NoError(t, err)
	m := born.(*machine)
	for _, tt := range []struct {
		kind           dmutex.Kind
		attempt, clock uint64
		answers        int
		queued         uint64
	}{
		{kind: dmutex.Release, attempt: 1, clock: 2},
		{kind: dmutex.Request, attempt: 3, clock: 3, answers: 1, queued: 3},
		{kind: dmutex.Request, attempt: 3, clock: 3, queued: 3},
		{kind: dmutex.Release, attempt: 1, clock: 2, queued: 3},
		{kind: dmutex.Release, attempt: 3, clock: 4},
		{kind: dmutex.Release, attempt: 3, clock: 4},
	} {
		out, err := m.Handle(dmutex.Message{Kind: tt.kind, From: 2, To: 1, Attempt: tt.attempt, Clock: tt.clock})
		require.NoError(t, err)
		require.Len(t, out, tt.answers, tt)
		require.Equal(t, tt.queued, m.queue[0], tt)
	}
}
