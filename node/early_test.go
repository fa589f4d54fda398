package node

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/node/internal/locks"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace"
)

// If the buffer had no room for an early message, the view of that message is replaced once, as
// soon as it acts.
func TestEarlyWithoutRoom(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		one.locks.Handle([]byte("x"), &trace.Message{Message: dmutex.Message{
			From: 2, To: 1, Fence: epochs.First(before.Epoch + 1), Numbers: make([]uint64, locks.EarlyBuffer/8),
		}})
		time.Sleep(time.Minute)
		require.Equal(t, before.Changes, one.Status().View.Changes, "the message is of a later view")
		two.group.Trouble(before.Epoch, dmutex.PeerMistake("test"))
		time.Sleep(time.Hour)
		require.Equal(t, before.Changes+2, one.Status().View.Changes)
	})
}

// A machine that has used up its fences costs a view change, and no call fails.
func TestExhausted(t *testing.T) {
	var next atomic.Bool
	algorithm := func(s dmutex.Start) (dmutex.Machine, error) {
		m, err := ricart.New(s)
		if next.Swap(false) {
			m = exhausted{m}
		}
		return m, err
	}
	pairOf(t, algorithm, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		next.Store(true)
		h, err := one.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.Equal(t, before.Changes+1, one.Status().View.Changes)
		require.NoError(t, h.Release())
		h, err = two.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Release())
		time.Sleep(time.Hour)
		require.Equal(t, before.Changes+1, one.Status().View.Changes)
	})
}

// exhausted is a machine that has used up the fences of its epoch.
type exhausted struct{ dmutex.Machine }

func (exhausted) Request() ([]dmutex.Message, error) { return nil, dmutex.ErrExhausted }
