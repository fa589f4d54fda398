package natslink

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A frame for a former number, which may still be on its way from the subscription, is not delivered.
func TestReceive(t *testing.T) {
	var got []string
	l := &Link{dynamic: true, prefix: "p", maxFrame: maxFrame, peers: make(map[dmutex.NodeID]*peer), done: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	l.host.Deliver = func(_ dmutex.NodeID, frames [][]byte) { got = append(got, string(frames[0])) }
	for _, self := range []dmutex.NodeID{1, 3} {
		require.NoError(t, l.Become(self))
		l.receive(&nats.Msg{Subject: "p.1.2", Data: []byte("to 1")}, 1)
	}
	l.receive(&nats.Msg{Subject: "p.3.2", Data: []byte("to 3")}, 3)
	require.Equal(t, []string{"to 1", "to 3"}, got)
	l.shut(transport.ErrClosed)
	l.receive(&nats.Msg{Subject: "p.3.2", Data: []byte("too late")}, 3)
	require.Len(t, got, 2)
}

// A frame that comes while Open waits for the server is delivered when Open is done.
func TestReceiveWhileOpening(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		delivered := 0
		l := &Link{self: 1, opening: make(chan struct{})}
		go l.receive(&nats.Msg{Subject: "p.1.2", Data: []byte("early")}, 1)
		synctest.Wait()
		l.mu.Lock()
		l.host.Deliver = func(dmutex.NodeID, [][]byte) { delivered++ }
		close(l.opening)
		l.opening = nil
		l.mu.Unlock()
		synctest.Wait()
		require.Equal(t, 1, delivered)
	})
}

// Trouble takes no time where nats.go keeps its callers waiting, however many peers it is asked for.
func TestTroubleOfStuckSocket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Link{self: 1, known: state{connected: true}, busy: time.Now()}
		require.NoError(t, l.Trouble(2))
		time.Sleep(stuckAfter + 1)
		before := time.Now()
		for to := range dmutex.NodeID(60) {
			require.ErrorContains(t, l.Trouble(to), "does not take what is sent")
		}
		require.Equal(t, before, time.Now())
	})
}
