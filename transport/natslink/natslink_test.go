package natslink_test

import (
	"bufio"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// The link is held against its contract in module integration, which embeds a
// real server. Here a few lines play one, and play it badly.

// A fakeServer greets, answers pings and throws away all else.
type fakeServer struct {
	listener   net.Listener
	maxPayload int
	refusal    string // what it says to a subscription

	mu    sync.Mutex
	stuck bool // it no longer reads
	conns []net.Conn
}

func serve(t *testing.T, maxPayload int) *fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &fakeServer{listener: listener, maxPayload: maxPayload}
	t.Cleanup(s.hangUp)
	go s.accept()
	return s
}

func (s *fakeServer) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		go s.talk(c)
	}
}

func (s *fakeServer) talk(c net.Conn) {
	fmt.Fprintf(c, "INFO {\"server_id\":\"fake\",\"proto\":1,\"max_payload\":%d}\r\n", s.maxPayload)
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "PING") {
			fmt.Fprint(c, "PONG\r\n")
		}
		if strings.HasPrefix(line, "SUB") {
			fmt.Fprint(c, s.refusal)
		}
		s.mu.Lock()
		stuck := s.stuck
		s.mu.Unlock()
		if stuck {
			return
		}
	}
}

func (s *fakeServer) getStuck() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stuck = true
}

func (s *fakeServer) hangUp() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		c.Close()
	}
}

func connect(t *testing.T, s *fakeServer) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect("nats://"+s.listener.Addr().String(), nats.NoReconnect(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // its default prints
	require.NoError(t, err)
	return nc
}

func TestNew(t *testing.T) {
	nc := connect(t, serve(t, 1<<20))
	defer nc.Close()
	closed := connect(t, serve(t, 1<<20))
	closed.Close()
	small := connect(t, serve(t, 2048))
	defer small.Close()
	tiny := connect(t, serve(t, 1000))
	defer tiny.Close()
	for _, test := range []struct {
		nc       *nats.Conn
		config   natslink.Config
		maxFrame int
		says     string // part of the refusal; empty if accepted
	}{
		{nc, natslink.Config{Self: 1, Prefix: "locks"}, natslink.MaxFrame, ""},
		{nc, natslink.Config{Self: 1, Prefix: "locks.billing.v1"}, natslink.MaxFrame, ""},
		{small, natslink.Config{Self: 1, Prefix: "locks"}, 2048, ""},
		{tiny, natslink.Config{Self: 1, Prefix: "locks"}, 0, "max_payload is 1000"},
		{nil, natslink.Config{Self: 1, Prefix: "locks"}, 0, "is nil"},
		{closed, natslink.Config{Self: 1, Prefix: "locks"}, 0, "is closed"},
		{nc, natslink.Config{Prefix: "locks"}, 0, "Config.Self is 0"},
		{nc, natslink.Config{Self: 1}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: ".locks"}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "locks."}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "a..b"}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "a b"}, 0, "space"},
		{nc, natslink.Config{Self: 1, Prefix: "a\r\nb"}, 0, "space"},
		{nc, natslink.Config{Self: 1, Prefix: "a.*"}, 0, "wildcard"},
		{nc, natslink.Config{Self: 1, Prefix: "a.>"}, 0, "wildcard"},
		{nc, natslink.Config{Self: 1, Prefix: "$JS.locks"}, 0, "reserved"},
		{nc, natslink.Config{Self: 1, Prefix: strings.Repeat("x", 255)}, natslink.MaxFrame, ""},
		{nc, natslink.Config{Self: 1, Prefix: strings.Repeat("x", 256)}, 0, "longer than 255 bytes"},
	} {
		l, err := natslink.New(test.nc, test.config)
		if test.says == "" {
			require.NoError(t, err, "%+v", test.config)
			require.Equal(t, test.maxFrame, l.MaxFrame())
			require.NoError(t, l.Close())
			continue
		}
		require.ErrorIs(t, err, dmutex.ErrMisuse, "%+v", test.config)
		require.ErrorContains(t, err, test.says)
	}
}

// A connection that nats.go closes because of the subscription is noticed.
func TestOpenOnNothing(t *testing.T) {
	s := serve(t, 1<<20)
	s.refusal = "-ERR 'maximum control line exceeded'\r\n"
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.ErrorContains(t, l.Open(func(dmutex.NodeID, []byte) {}), "control line exceeded")
	require.True(t, nc.IsClosed())
	require.ErrorIs(t, l.Open(func(dmutex.NodeID, []byte) {}), nats.ErrConnectionClosed)
	require.NoError(t, l.Close())
}

// When the server does not read, nats.go blocks whoever publishes. Send does
// not wait for that: the test would not end.
func TestStuckServer(t *testing.T) {
	s := serve(t, 1<<20)
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.NoError(t, l.Open(func(dmutex.NodeID, []byte) {}))
	s.getStuck()
	frame := make([]byte, l.MaxFrame())
	accepted, refused := 0, 0
	for range 10_000 { // 600 MB, far more than sockets buffer
		if err := l.Send(2, frame); err == nil {
			accepted++
		} else {
			require.ErrorIs(t, err, transport.ErrFull)
			refused++
		}
		runtime.Gosched()
	}
	require.GreaterOrEqual(t, accepted, natslink.Backlog/len(frame)-1)
	require.Positive(t, refused)
	s.hangUp()
	require.NoError(t, l.Close())
	nc.Close()
}
