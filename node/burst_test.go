package node

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A burstLink delivers together what arrives while it is dammed, and counts what
// it sends.
type burstLink struct {
	transport.Link
	sent    atomic.Int64
	stall   atomic.Pointer[chan struct{}] // what the next Send waits for, if anything
	deliver func(from dmutex.NodeID, frames [][]byte)

	mu     sync.Mutex
	dammed bool
	frames [][]byte
}

func (l *burstLink) Send(to dmutex.NodeID, frame []byte) error {
	l.sent.Add(1)
	if stall := l.stall.Swap(nil); stall != nil {
		<-*stall
	}
	return l.Link.Send(to, frame)
}

func (l *burstLink) OpenBursts(deliver func(from dmutex.NodeID, frames [][]byte)) error {
	l.deliver = deliver
	return l.Link.Open(func(from dmutex.NodeID, frame []byte) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.dammed {
			l.frames = append(l.frames, bytes.Clone(frame))
		} else {
			deliver(from, [][]byte{frame})
		}
	})
}

func (l *burstLink) dam() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dammed = true
}

// take returns the frames that wait, and leaves the link dammed.
func (l *burstLink) take() (frames [][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	frames, l.frames = l.frames, nil
	return frames
}

// burst delivers the frames that wait, all of one node, and returns how many there
// were and how many were sent meanwhile.
func (l *burstLink) burst(from dmutex.NodeID) (frames int, sent int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, frames := l.sent.Load(), len(l.frames)
	l.deliver(from, l.frames)
	l.dammed, l.frames = false, nil
	return frames, l.sent.Load() - before
}

// openPair opens nodes 1 and 2, with a burstLink for 1.
func openPair(t *testing.T, a dmutex.Algorithm) (one, two *Node, link *burstLink) {
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	link = &burstLink{Link: network.Link(1)}
	members := []dmutex.NodeID{1, 2}
	one, err = Open(t.Context(), Config{Self: 1, Members: members, Algorithm: a, Link: link})
	require.NoError(t, err)
	two, err = Open(t.Context(), Config{Self: 2, Members: members, Algorithm: a, Link: network.Link(2)})
	require.NoError(t, err)
	require.NoError(t, one.Ready(t.Context()))
	require.NoError(t, two.Ready(t.Context()))
	return one, two, link
}

func closeBoth(t *testing.T, nodes ...*Node) {
	for _, n := range nodes {
		require.NoError(t, n.Close(t.Context()))
	}
}

// Requests that arrive together are answered together, in one frame.
func TestBurstIsAnsweredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, link := openPair(t, central.New)
		const count = 10
		link.dam()
		var asking sync.WaitGroup
		for i := range count {
			asking.Go(func() {
				h, err := two.Mutex(fmt.Sprint(i)).Acquire(t.Context())
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				h.Release()
			})
			synctest.Wait() // each has sent a frame of its own
		}
		frames, sent := link.burst(2)
		asking.Wait()
		closeBoth(t, one, two)
		require.Equal(t, count, frames)
		require.EqualValues(t, 1, sent, "frames for %d answers", count)
	})
}

// A hookedMachine calls a function before it handles a message.
type hookedMachine struct {
	dmutex.Machine
	self dmutex.NodeID
	hook *func()
}

func (m *hookedMachine) Handle(message dmutex.Message) ([]dmutex.Message, error) {
	if m.self == 1 && *m.hook != nil {
		(*m.hook)()
	}
	return m.Machine.Handle(message)
}

// Who has something to send while a burst is handled waits for the present frame,
// and not for the burst.
func TestBurstHoldsUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hook func()
		one, two, link := openPair(t, func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return &hookedMachine{m, s.Self, &hook}, err
		})
		held, err := one.Mutex("held").Acquire(t.Context())
		require.NoError(t, err)
		names := []string{"held"}
		for i := 0; len(names) < 4; i++ { // in other shards, which are locked when the hook is called
			if name := fmt.Sprint(i); one.Mutex(name).shard != held.lock.shard {
				names = append(names, name)
			}
		}
		var asking sync.WaitGroup
		for i, name := range names {
			if i == 1 {
				link.dam() // node 1 knows of the first request
			}
			asking.Go(func() {
				h, err := two.Mutex(name).Acquire(t.Context())
				if err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				h.Release()
			})
			synctest.Wait()
		}
		before := link.sent.Load()
		var by []int64 // how many frames were sent by the time that each arrives
		hook = func() {
			if by = append(by, link.sent.Load()-before); len(by) == 1 {
				if err := held.Release(); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		}
		frames, sent := link.burst(2)
		asking.Wait()
		closeBoth(t, one, two)
		require.Equal(t, 3, frames)
		require.Equal(t, []int64{0, 1, 1}, by)
		require.EqualValues(t, 2, sent)
	})
}

// Whoever is sending to a peer of which a frame comes in meanwhile does not
// acknowledge that before its answers are there: a TryAcquire would take it for a
// refusal.
func TestNoAcknowledgementBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hook func()
		one, two, link := openPair(t, func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return &hookedMachine{m, s.Self, &hook}, err
		})
		tried, i := one.Mutex("tried"), 0
		elsewhere := func() string { // in another shard than what is tried
			for i++; one.Mutex(fmt.Sprint(i)).shard == tried.shard; i++ {
			}
			return fmt.Sprint(i)
		}
		name := elsewhere()
		held, err := one.Mutex(name).Acquire(t.Context())
		require.NoError(t, err)
		var asking sync.WaitGroup
		acquire := func(m *Mutex, acquire func(*Mutex, context.Context) (*Held, error)) {
			asking.Go(func() {
				h, err := acquire(m, t.Context())
				if err != nil {
					t.Errorf("%v", err)
					return
				}
				h.Release()
			})
			synctest.Wait()
		}
		acquire(two.Mutex(name), (*Mutex).Acquire)

		link.dam()
		stall := make(chan struct{})
		link.stall.Store(&stall)
		acquire(one.Mutex(elsewhere()), (*Mutex).Acquire) // is in Send
		acquire(two.Mutex("tried"), (*Mutex).TryAcquire)
		hook = func() {
			hook = nil
			if err := held.Release(); err != nil { // there is something to send
				t.Errorf("Release: %v", err)
			}
			close(stall)
			synctest.Wait()
		}
		frames := link.take()
		require.Len(t, frames, 1)
		link.deliver(2, frames)
		link.burst(2)
		asking.Wait()
		closeBoth(t, one, two)
	})
}
