package natslink_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/natsnet"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/natslink"
)

// simulate makes links in a bubble, each with a connection of its own to a server in memory.
func simulate(s func() *natsnet.Server, late time.Duration) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			s := s()
			return func(self dmutex.NodeID) transport.Link {
				w := s.Way()
				w.Delay(late)
				l, err := natslink.New(simulated(t, w), natslink.Config{Self: self, Prefix: "test.locks"})
				require.NoError(t, err)
				return l
			}
		},
		Ordered: true, AnyNode: true, Synctest: true,
	}
}

func simulated(t *testing.T, w *natsnet.Way) *nats.Conn {
	nc, err := w.Connect(nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the default handler prints
	require.NoError(t, err)
	t.Cleanup(func() {
		nc.Close()
		synctest.Wait()
	})
	return nc
}

// Trouble says that there is no server, until there is one again and a frame was sent. That a server is stuck it says in
// TestTroubleDoesNotWait.
func TestSimulatedTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := natsnet.New(1).Way()
		l, err := natslink.New(simulated(t, w), natslink.Config{Self: 1, Prefix: "test.locks"})
		require.NoError(t, err)
		require.NoError(t, l.Open(deaf))
		send := func() {
			synctest.Wait()
			require.NoError(t, l.Send(2, []byte("frame")))
			synctest.Wait()
		}
		send()
		require.NoError(t, l.Trouble(2))
		time.Sleep(time.Minute) // nothing to send is no trouble
		require.NoError(t, l.Trouble(2))
		w.Refuse(true)
		w.Drop()
		send()
		require.ErrorContains(t, l.Trouble(2), "natslink: no connection to a server: ")
		w.Refuse(false)
		time.Sleep(time.Second)
		send()
		require.NoError(t, l.Trouble(2))
		require.NoError(t, l.Close())
	})
}

// While Open waits for a server that hangs, nothing else waits for Open.
func TestSimulatedOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := natsnet.New(1).Way()
		l, err := natslink.New(simulated(t, w), natslink.Config{Self: 1, Prefix: "test.locks"})
		require.NoError(t, err)
		w.Hold(true, true)
		host, opened := deaf, make(chan error, 1)
		go func() { opened <- l.Open(host) }()
		synctest.Wait()
		began := time.Now()
		require.ErrorIs(t, l.Send(2, []byte("frame")), transport.ErrClosed)
		require.NoError(t, l.Trouble(2))
		require.ErrorIs(t, l.Open(host), dmutex.ErrMisuse)
		require.Empty(t, opened)
		require.Zero(t, time.Since(began))
		require.NoError(t, <-opened)
		require.Equal(t, 2*time.Second, time.Since(began))
		w.Hold(false, false)
		require.NoError(t, l.Close())
	})
}

// A link that is closed while Open waits does not open, and Close returns when Open is done.
func TestSimulatedOpenAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := natsnet.New(1).Way()
		l, err := natslink.New(simulated(t, w), natslink.Config{Self: 1, Prefix: "test.locks"})
		require.NoError(t, err)
		w.Hold(true, true)
		opened := make(chan error, 1)
		go func() { opened <- l.Open(deaf) }()
		synctest.Wait()
		began := time.Now()
		require.NoError(t, l.Close())
		require.Equal(t, 2*time.Second, time.Since(began))
		require.ErrorIs(t, <-opened, transport.ErrClosed)
		require.ErrorIs(t, l.Send(2, []byte("frame")), transport.ErrClosed)
		w.Hold(false, false)
	})
}

// The links keep their contract over a server in memory, also where it is slow, and where it restarts.
func TestSimulated(t *testing.T) {
	var s *natsnet.Server
	start := func() *natsnet.Server {
		s = natsnet.New(1)
		return s
	}
	t.Run("fast", func(t *testing.T) { linktest.TestLink(t, simulate(start, 0)) })
	t.Run("slow", func(t *testing.T) { linktest.TestStream(t, simulate(start, 20*time.Millisecond), nil) })
	t.Run("dynamic", func(t *testing.T) { linktest.TestDynamicLink(t, simulate(start, 0)) })
	t.Run("restart", func(t *testing.T) {
		linktest.TestStream(t, simulate(start, time.Millisecond), func() {
			s.Stop()
			time.Sleep(time.Second)
			s.Start()
		})
	})
}
