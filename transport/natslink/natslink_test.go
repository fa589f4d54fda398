package natslink_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// Module integration tests the contract of the link, with a real server. Here a few
// lines play a server that misbehaves.

// A fakeServer greets, answers pings and ignores all else.
type fakeServer struct {
	listener   net.Listener
	maxPayload int
	refusal    string // what it says to a subscription
	greeting   string // what it says at the end of its first words
	published  string // what it says to a frame

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
	greeted := false
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "PING") {
			if fmt.Fprint(c, "PONG\r\n"); !greeted {
				fmt.Fprint(c, s.greeting)
				greeted = true
			}
		}
		if strings.HasPrefix(line, "PUB") {
			fmt.Fprint(c, s.published)
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
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // the default handler prints
	require.NoError(t, err)
	return nc
}

// deaf is the host of a link that hears nobody.
var deaf = transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}

// open opens a link over a connection of its own.
func open(t *testing.T, s *fakeServer, self dmutex.NodeID) (*nats.Conn, *natslink.Link) {
	t.Helper()
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: self, Prefix: "locks"})
	require.NoError(t, err)
	require.NoError(t, l.Open(deaf))
	return nc, l
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
		{nc, natslink.Config{Self: 1, Prefix: "locks"}, 64 << 10, ""},
		{nc, natslink.Config{Self: 1, Prefix: "locks.billing.v1"}, 64 << 10, ""},
		{small, natslink.Config{Self: 1, Prefix: "locks"}, 2048, ""},
		{tiny, natslink.Config{Self: 1, Prefix: "locks"}, 0, "max_payload is 1000"},
		{nil, natslink.Config{Self: 1, Prefix: "locks"}, 0, "is nil"},
		{closed, natslink.Config{Self: 1, Prefix: "locks"}, 0, "is closed"},
		{nc, natslink.Config{Prefix: "locks"}, 64 << 10, ""},
		{nc, natslink.Config{Self: 1}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: ".locks"}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "locks."}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "a..b"}, 0, "empty token"},
		{nc, natslink.Config{Self: 1, Prefix: "a b"}, 0, "space"},
		{nc, natslink.Config{Self: 1, Prefix: "a\r\nb"}, 0, "space"},
		{nc, natslink.Config{Self: 1, Prefix: "a.*"}, 0, "wildcard"},
		{nc, natslink.Config{Self: 1, Prefix: "a.>"}, 0, "wildcard"},
		{nc, natslink.Config{Self: 1, Prefix: "$JS.locks"}, 0, "reserved"},
		{nc, natslink.Config{Self: 1, Prefix: strings.Repeat("x", 255)}, 64 << 10, ""},
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

// A link that New has not made says so.
func TestZero(t *testing.T) {
	l := new(natslink.Link)
	require.ErrorIs(t, l.Open(transport.Host{}), dmutex.ErrMisuse)
	require.NoError(t, l.Close())
}

// Open fails if nats.go closes the connection because of the subscription.
func TestOpenOnClosedConnection(t *testing.T) {
	s := serve(t, 1<<20)
	s.refusal = "-ERR 'maximum control line exceeded'\r\n"
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.ErrorContains(t, l.Open(deaf), "control line exceeded")
	require.True(t, nc.IsClosed())
	require.ErrorIs(t, l.Open(deaf), nats.ErrConnectionClosed)
	require.NoError(t, l.Close())
}

// When the server does not read, nats.go blocks publishers. Send does
// not wait for the server. If it did, the test would not end.
func TestStuckServer(t *testing.T) {
	s := serve(t, 1<<20)
	nc, l := open(t, s, 1)
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
	require.GreaterOrEqual(t, accepted, 1<<20/len(frame)-1)
	require.Positive(t, refused)
	s.hangUp()
	require.NoError(t, l.Close())
	nc.Close()
}

// Trouble does not wait for a stuck server either, and says that it is.
func TestTroubleDoesNotWait(t *testing.T) {
	s := serve(t, 1<<20)
	nc, l := open(t, s, 1)
	s.getStuck()
	frame := make([]byte, l.MaxFrame())
	for late := time.Now().Add(2 * time.Second); time.Now().Before(late); runtime.Gosched() { // far more than sockets buffer
		_ = l.Send(2, frame)
	}
	start := time.Now()
	require.ErrorContains(t, l.Trouble(2), "does not take what is sent")
	require.Less(t, time.Since(start), 10*time.Second, "nats.go makes callers wait for a minute")
	s.hangUp()
	require.NoError(t, l.Close())
	nc.Close()
}

// awaitError waits until the last error of the connection contains says.
func awaitError(t *testing.T, nc *nats.Conn, says string) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); nc.LastError() == nil || !strings.Contains(nc.LastError().Error(), says); runtime.Gosched() {
		require.True(t, time.Now().Before(late), "waited in vain for %q: %v", says, nc.LastError())
	}
}

// awaitTrouble sends frames to node 2, as a stream does, until the link says what is wrong.
func awaitTrouble(t *testing.T, l *natslink.Link, says string) {
	t.Helper()
	for late := time.Now().Add(30 * time.Second); l.Trouble(2) == nil; runtime.Gosched() {
		require.True(t, time.Now().Before(late), "waited in vain for %q", says)
		require.NoError(t, l.Send(2, []byte("frame")))
	}
	require.ErrorContains(t, l.Trouble(2), says)
}

// Errors about other subjects, and earlier errors about its own, do not keep a link from opening.
func TestOpenIgnoresOtherErrors(t *testing.T) {
	const ours = "-ERR 'Permissions Violation for Subscription to \"locks.1.*\"'\r\n"
	const others = "-ERR 'Permissions Violation for Subscription to \"others\"'\r\n"
	for _, test := range []struct{ before, refusal string }{
		{"", others},
		{ours, ""},
	} {
		s := serve(t, 1<<20)
		s.greeting, s.refusal = test.before, test.refusal
		nc := connect(t, s)
		if test.before != "" {
			awaitError(t, nc, "locks.1.*")
		}
		l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
		require.NoError(t, err)
		require.NoError(t, l.Open(deaf))
		require.NoError(t, l.Close())
		nc.Close()
	}

	s := serve(t, 1<<20)
	s.refusal = ours
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.ErrorIs(t, l.Open(deaf), nats.ErrPermissionViolation)
	nc.Close()
}

// Close waits for the goroutine that publishes. While nats.go reconnects there is no
// server to wait for, so nothing else holds Close back.
func TestCloseWaitsForPublishers(t *testing.T) {
	s := serve(t, 1<<20)
	s.hangUp()
	nc, err := nats.Connect("nats://"+s.listener.Addr().String(), nats.RetryOnFailedConnect(true), nats.ReconnectBufSize(1<<30))
	require.NoError(t, err)
	defer nc.Close()
	for range 50 {
		l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
		require.NoError(t, err)
		require.NoError(t, l.Open(deaf))
		before := nc.Stats().OutMsgs
		const frames = 10_000
		for range frames {
			require.NoError(t, l.Send(2, []byte("frame")))
		}
		require.NoError(t, l.Close())
		require.Equal(t, before+frames, nc.Stats().OutMsgs)
	}
}

// A stuckLog blocks its writers until it is closed.
type stuckLog chan struct{}

func (l stuckLog) Write(record []byte) (int, error) {
	<-l
	return len(record), nil
}

// A stuck log delays no frame.
func TestStuckLog(t *testing.T) {
	nc := connect(t, serve(t, 1<<20))
	release := make(stuckLog)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{
		Deliver: func(dmutex.NodeID, [][]byte) {}, Logger: slog.New(slog.NewTextHandler(release, nil)),
	}))
	nc.Close()
	for late := time.Now().Add(30 * time.Second); !errors.Is(l.Send(2, []byte("frame")), transport.ErrClosed); runtime.Gosched() {
		require.True(t, time.Now().Before(late), "the goroutine that publishes waits for the log")
	}
	close(release)
	require.NoError(t, l.Close())
}

// Trouble says why frames do not arrive, as far as a link over NATS can know.
func TestTrouble(t *testing.T) {
	s := serve(t, 1<<20)
	s.published = "-ERR 'Permissions Violation for Publish to \"locks.2.1\"'\r\n"
	nc, l := open(t, s, 1)
	require.NoError(t, l.Trouble(2))
	require.NoError(t, l.Send(2, []byte("frame")))
	awaitError(t, nc, "locks.2.1")
	awaitTrouble(t, l, "natslink: frames to node 2 are lost: nats: permissions violation")
	require.NoError(t, l.Trouble(3))
	nc.Close()
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Trouble(3), transport.ErrClosed)
}

func TestDynamicRefuses(t *testing.T) {
	nc := connect(t, serve(t, 1<<20))
	defer nc.Close()
	fixed, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: "locks"})
	require.NoError(t, err)
	require.ErrorIs(t, fixed.Become(2), dmutex.ErrMisuse)
	require.ErrorIs(t, fixed.SetPeer(2, ""), dmutex.ErrMisuse)
	require.NoError(t, fixed.Close())
	l, err := natslink.New(nc, natslink.Config{Prefix: "locks"})
	require.NoError(t, err)
	require.NoError(t, l.Become(1))
	require.ErrorContains(t, l.SetPeer(2, "127.0.0.1:7000"), "another kind of link")
	nc.Close()
	require.ErrorIs(t, l.Open(deaf), nats.ErrConnectionClosed)
	require.NoError(t, l.Close())
}

// A link takes new numbers and peers even if its server is stuck. If each call waited for
// a minute, as nats.go makes publishers wait, this test would never end.
func TestBecomeDoesNotWait(t *testing.T) {
	s := serve(t, 1<<20)
	nc, l := open(t, s, dmutex.None)
	s.getStuck()
	frame := make([]byte, l.MaxFrame())
	for self := range dmutex.NodeID(1000) { // the socket buffers less than all these frames
		require.NoError(t, l.Become(self+1))
		require.NoError(t, l.SetPeer(self+2, ""))
		for l.Send(self+2, frame) == nil {
		}
		l.RemovePeer(self + 2)
	}
	s.hangUp()
	require.NoError(t, l.Close())
	nc.Close()
}

// Former numbers and removed peers leave nothing behind.
func TestNothingIsLeftOfPeers(t *testing.T) {
	nc, l := open(t, serve(t, 1<<20), dmutex.None)
	defer nc.Close()
	last := dmutex.NodeID(1)
	round := func() {
		for range 1000 {
			last++
			require.NoError(t, l.SetPeer(last, ""))
			err := l.Send(last, []byte("frame"))
			require.True(t, err == nil || errors.Is(err, transport.ErrFull), "%v", err)
			l.RemovePeer(last)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	require.NoError(t, l.Become(1))
	round()
	before := heap()
	for range 50 {
		round()
	}
	// 50,000 subjects would be 5 MB.
	require.Less(t, heap()-before, int64(2<<20))
	for range 1000 {
		last++
		require.NoError(t, l.Become(last))
	}
	require.LessOrEqual(t, nc.NumSubscriptions(), 2)
	require.NoError(t, l.Close())
	require.Zero(t, nc.NumSubscriptions())
}

// A link that may not subscribe to its number says so.
func TestTroubleOfNumbers(t *testing.T) {
	s := serve(t, 1<<20)
	s.refusal = "-ERR 'Permissions Violation for Subscription to \"locks.7.*\"'\r\n"
	nc := connect(t, s)
	var log strings.Builder
	l, err := natslink.New(nc, natslink.Config{Prefix: "locks", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	require.NoError(t, l.Open(deaf))
	require.ErrorContains(t, l.Trouble(2), "natslink: this node has no number yet")
	require.NoError(t, l.Become(7))
	require.NoError(t, l.SetPeer(2, ""))
	awaitError(t, nc, "locks.7.*")
	awaitTrouble(t, l, "natslink: frames to this node, 7, are lost: nats: permissions violation")
	nc.Close()
	require.NoError(t, l.Send(2, []byte("frame")))
	require.NoError(t, l.Close())
	require.Contains(t, log.String(), "subject=locks.2.7")
}
