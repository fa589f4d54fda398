package node

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/trace"
)

// Early messages take no more room than there is, give it back, and make room for those of
// earlier views.
func TestEarlyRoom(t *testing.T) {
	pair(t, func(t *testing.T, one, _ *Node) {
		s := &one.locks.shards[0]
		s.mu.Lock()
		defer s.mu.Unlock()
		quarter := func(epochs int) early {
			e := early{strings.Repeat("x", 64), trace.Message{Message: dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 1}}}
			e.message.Fence = membership.FirstFence(s.epoch + uint64(epochs))
			e.message.Nodes = make([]dmutex.NodeID, 16)
			e.message.Numbers = make([]uint64, (earlyBuffer/4-192-64-8*16)/8)
			require.Equal(t, earlyBuffer/4, e.size())
			return e
		}
		kept := func(epochs ...int) {
			t.Helper()
			var want, got []early
			for _, n := range epochs {
				want = append(want, quarter(n))
			}
			got = append(got, s.early...)
			require.Equal(t, want, got)
			require.Equal(t, len(epochs)*earlyBuffer/4, s.room)
		}
		for _, n := range []int{2, 4, 3, 1} {
			e := quarter(n)
			s.handle([]byte(e.name), e.message)
		}
		kept(2, 4, 3, 1)
		require.False(t, s.dropped, "there was room")
		s.keep(quarter(4))
		s.keep(quarter(5))
		kept(2, 4, 3, 1)
		require.True(t, s.dropped)
		s.keep(quarter(2))
		kept(2, 3, 1, 2)
		s.keep(quarter(1))
		kept(2, 1, 2, 1)
		s.keep(quarter(2))
		kept(2, 1, 2, 1)
		s.rehandle()
		kept(2, 1, 2, 1)
		s.early, s.room, s.dropped = nil, 0, false // nobody has sent these
	})
}

// If an early message found no room the view is replaced as soon as it acts, once.
func TestEarlyWithoutRoom(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		s := one.locks.shard("x")
		s.mu.Lock()
		s.keep(early{"x", trace.Message{Message: dmutex.Message{
			From: 2, To: 1, Fence: membership.FirstFence(s.epoch + 1), Numbers: make([]uint64, earlyBuffer/8),
		}}})
		require.True(t, s.dropped)
		s.mu.Unlock()
		time.Sleep(time.Minute)
		require.Equal(t, before.Changes, one.Status().View.Changes, "the view is another one")
		two.locks.trouble(before.Epoch, dmutex.PeerMistake("test"))
		time.Sleep(time.Hour)
		require.Equal(t, before.Changes+2, one.Status().View.Changes)
	})
}

// A machine whose fences are used up costs a view, and no caller anything.
func TestExhausted(t *testing.T) {
	pair(t, func(t *testing.T, one, two *Node) {
		before := one.Status().View
		s := one.locks.shard("x")
		s.mu.Lock()
		l := s.lock("x")
		l.machine = exhausted{l.machine}
		s.mu.Unlock()
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

// exhausted is a machine at the end of its epoch.
type exhausted struct{ dmutex.Machine }

func (exhausted) Request() ([]dmutex.Message, error) { return nil, dmutex.ErrExhausted }

// Forgetting a lock drops no other one.
func TestForgetOneLock(t *testing.T) {
	pair(t, func(t *testing.T, one, _ *Node) {
		s := &one.locks.shards[7]
		var held *Held
		used := 0
		for i := 0; used < 3*keepResting; i++ {
			m := one.Mutex(strings.Repeat("x", i%200+1) + string(rune('0'+i/200)))
			if m.shard != s {
				continue
			}
			h, err := m.Acquire(t.Context())
			require.NoError(t, err)
			if used++; held == nil {
				held = h
				continue
			}
			require.NoError(t, h.Release())
			s.mu.Lock()
			require.Same(t, held.lock, s.table[held.lock.name])
			require.Len(t, s.table, min(used, keepResting+1))
			s.mu.Unlock()
		}
		require.NoError(t, held.Release())
	})
}
