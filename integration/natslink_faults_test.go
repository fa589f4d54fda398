package integration

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/natslink"
)

const maxFrame = 64 << 10 // of natslink

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !is(); runtime.Gosched() {
		require.True(t, time.Now().Before(late), what)
	}
}

// Frames that were sent before Close arrive, even if the process ends right after it.
func TestNATSLinkCloseDrains(t *testing.T) {
	s := open(t)
	_, got := listen(t, connect(t, s), 2, prefix)
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	const frames = 90
	for range frames {
		require.NoError(t, l.Send(2, make([]byte, 1000)))
	}
	require.NoError(t, l.Close())
	left, err := nc.Buffered()
	require.NoError(t, err)
	require.Zero(t, left)
	for range frames {
		await(t, got)
	}
}

// When the application drains its connection, the link stops taking frames and reports
// that it is closed.
func TestNATSLinkDrain(t *testing.T) {
	s := open(t)
	_, got := listen(t, connect(t, s), 2, prefix)
	gone := make(chan bool)
	nc := connect(t, s, nats.ClosedHandler(func(*nats.Conn) { close(gone) }))
	l, _ := listen(t, nc, 1, prefix)
	require.NoError(t, l.Send(2, []byte("before")))
	require.Equal(t, heard{1, "before"}, await(t, got))
	require.NoError(t, nc.Drain())
	await(t, gone)
	eventually(t, "the link never stops taking frames", func() bool {
		return errors.Is(l.Send(2, []byte("after")), transport.ErrClosed)
	})
	require.Empty(t, got)
}

// The connection belongs to the application: the link does not change its handlers.
func TestNATSLinkLeavesHandlers(t *testing.T) {
	s := open(t)
	var here place
	here.moveIn(s)
	told := make(chan string, 10)
	nc := connect(t, s, nats.SetCustomDialer(&here),
		nats.DisconnectErrHandler(func(*nats.Conn, error) { told <- "disconnected" }),
		nats.ReconnectHandler(func(*nats.Conn) { told <- "reconnected" }),
		nats.ClosedHandler(func(*nats.Conn) { told <- "closed" }))
	nc.SetErrorHandler(func(*nats.Conn, *nats.Subscription, error) { told <- "error" })
	l, got := listen(t, nc, 1, prefix)
	stopNATS(s)
	require.Equal(t, "disconnected", await(t, told))
	s = open(t)
	here.moveIn(s)
	require.Equal(t, "reconnected", await(t, told))
	require.NoError(t, nc.Flush()) // the subscription is there again
	other, _ := listen(t, connect(t, s), 2, prefix)
	require.NoError(t, other.Send(1, []byte("hello again")))
	require.Equal(t, heard{2, "hello again"}, await(t, got))
	require.NoError(t, l.Close())
	require.Equal(t, nats.CONNECTED, nc.Status())
	require.Empty(t, told)
	nc.Close()
	require.Equal(t, "disconnected", await(t, told))
	require.Equal(t, "closed", await(t, told))
}

// A node that does not read while others send loses frames, and holds up nothing else on
// its connection. The application learns of the loss.
func TestNATSLinkSlowConsumer(t *testing.T) {
	for _, flood := range []struct {
		name               string
		frames, size, kept int
	}{
		{"of large frames", 512, maxFrame, 16 << 20 / maxFrame},
		{"of small frames", 100_000, 1, 64 << 10},
	} {
		t.Run(flood.name, func(t *testing.T) { slowConsumer(t, flood.frames, flood.size, flood.kept) })
	}
}

func slowConsumer(t *testing.T, frames, size, kept int) {
	s := open(t)
	nc := connect(t, s)
	slow := make(chan error, 1)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case slow <- err:
		default:
		}
	})
	deaf, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	arrived, cured := make(chan byte, frames+1), make(chan bool)
	require.NoError(t, deaf.Open(transport.Host{Deliver: linktest.Each(func(_ dmutex.NodeID, frame []byte) {
		<-cured
		arrived <- frame[0]
	})}))
	t.Cleanup(func() { require.NoError(t, deaf.Close()) })
	cure := sync.OnceFunc(func() { close(cured) })
	t.Cleanup(cure)                    // runs before Close
	_, got := listen(t, nc, 2, prefix) // on the same connection

	loud := connect(t, s)
	frame := make([]byte, size)
	for i := range frames {
		require.NoError(t, loud.Publish(prefix+".1.3", frame))
		if i%5000 == 0 {
			require.NoError(t, loud.Flush()) // one Flush of all frames might time out
		}
	}
	require.NoError(t, loud.Publish(prefix+".2.3", []byte("quiet")))
	require.NoError(t, loud.Flush())
	require.Equal(t, heard{3, "quiet"}, await(t, got), "the other link goes on")
	require.ErrorIs(t, await(t, slow), nats.ErrSlowConsumer)
	cure()
	for range kept - 1 {
		require.Zero(t, await(t, arrived))
	}
	require.NoError(t, loud.Publish(prefix+".1.3", []byte{1})) // now there is room
	for more := 0; await(t, arrived) == 0; more++ {
		require.Less(t, more, 3, "it kept more than %d", kept)
	}
}

// Sessions repair the losses of a slow consumer: while one of the nodes does not
// read, nonsense fills its buffer.
func TestNATSLinkSessionOverSlowConsumer(t *testing.T) {
	var s *server.Server
	var slow atomic.Bool
	kind := linktest.Links{New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
		s = open(t)
		return func(self dmutex.NodeID) transport.Link {
			nc := connect(t, s)
			nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
				if errors.Is(err, nats.ErrSlowConsumer) {
					slow.Store(true)
				}
			})
			l, err := natslink.New(nc, natslink.Config{Self: self, Prefix: prefix})
			require.NoError(t, err)
			return l
		}
	}}
	linktest.TestStream(t, kind, func() {
		nc := connect(t, s)
		frame := make([]byte, maxFrame)
		for round := 0; !slow.Load(); round++ { // at the node that does not read, frames find no room
			require.Less(t, round, 2000, "a node keeps 125 MiB")
			for _, node := range []string{".1.x", ".2.x", ".3.x"} {
				require.NoError(t, nc.Publish(prefix+node, frame))
			}
			require.NoError(t, nc.Flush())
		}
	})
}

// If the next server has a smaller max_payload, small frames still arrive. The loss of
// large frames is logged once.
func TestNATSLinkSmallerServer(t *testing.T) {
	var here place
	start := func(maxPayload int32) *server.Server {
		s := startNATS(t, server.Options{Port: -1, MaxPayload: maxPayload})
		here.moveIn(s)
		return s
	}
	s := start(8 << 10)
	back := make(chan bool, 10)
	nc := connect(t, s, nats.SetCustomDialer(&here), nats.ReconnectHandler(func(*nats.Conn) { back <- true }))
	var log journal
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix, Logger: log.logger()})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	require.Equal(t, 8<<10, l.MaxFrame())

	stopNATS(s)
	s = start(4 << 10)
	await(t, back)
	_, got := listen(t, connect(t, s, nats.SetCustomDialer(&here)), 2, prefix)
	for range 3 {
		require.NoError(t, l.Send(2, make([]byte, 8<<10)))
	}
	require.NoError(t, l.Send(2, []byte("small")))
	require.Equal(t, heard{1, "small"}, await(t, got))
	eventually(t, "the record of the loss", func() bool { return strings.Contains(log.String(), "maximum payload exceeded") })
	require.Equal(t, 1, strings.Count(log.String(), "frames are lost"), log.String())

	stopNATS(s)
	s = start(8 << 10)
	await(t, back)
	_, got = listen(t, connect(t, s), 2, prefix)
	require.NoError(t, l.Send(2, make([]byte, 8<<10)))
	require.Len(t, await(t, got).frame, 8<<10)
}
