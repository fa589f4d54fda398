package tcplink

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
)

// These tests play the other side of a connection by hand.

const patience = 30 * time.Second // only a failing test waits this long

type arrival struct {
	from  dmutex.NodeID
	frame string
}

// openLink opens a link with the peers 1 to 4, and returns what arrives.
func openLink(t *testing.T, self dmutex.NodeID, pace pace) (*Link, <-chan arrival) {
	t.Helper()
	return openLinkWith(t, Config{Self: self}, pace)
}

func openLinkWith(t *testing.T, config Config, pace pace) (*Link, <-chan arrival) {
	t.Helper()
	return openLinkFor(t, transport.Host{}, config, pace)
}

// openLinkFor opens the link for a host. What arrives goes to the channel, and strangers as frames without bytes.
func openLinkFor(t *testing.T, host transport.Host, config Config, pace pace) (*Link, <-chan arrival) {
	t.Helper()
	config.Listen = "127.0.0.1:0"
	if config.Self != dmutex.None && config.Peers == nil {
		config.Peers = map[dmutex.NodeID]string{1: "", 2: "", 3: "", 4: ""}
	}
	l, err := newLink(config, pace)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	got := make(chan arrival, 100)
	host.Deliver = linktest.Each(func(from dmutex.NodeID, frame []byte) { got <- arrival{from, string(frame)} })
	require.NoError(t, l.Open(host))
	return l, got
}

// dialByHand connects to a link.
func dialByHand(t *testing.T, l *Link) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	return byHand(t, c)
}

func byHand(t *testing.T, c net.Conn) net.Conn {
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c
}

// greetByHand connects to a link as a node of higher id.
func greetByHand(t *testing.T, l *Link, from dmutex.NodeID) net.Conn {
	t.Helper()
	c := dialByHand(t, l)
	greet(t, c, from, l.self)
	return c
}

// greet greets, and takes the answer.
func greet(t *testing.T, c net.Conn, from, to dmutex.NodeID) {
	t.Helper()
	require.NoError(t, writeGreeting(c, from, to))
	require.Equal(t, to, takeGreeting(t, c, from))
}

// listenByHand listens where a link will dial, as a node of lower id.
func listenByHand(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

// meetByHand accepts a connection.
func meetByHand(t *testing.T, listener net.Listener) net.Conn {
	t.Helper()
	c, err := listener.Accept()
	require.NoError(t, err)
	return byHand(t, c)
}

func acceptByHand(t *testing.T, listener net.Listener, self, from dmutex.NodeID) net.Conn {
	t.Helper()
	return answer(t, meetByHand(t, listener), self, from)
}

// answer takes a greeting, and answers it.
func answer[C net.Conn](t *testing.T, c C, self, from dmutex.NodeID) C {
	t.Helper()
	require.Equal(t, from, takeGreeting(t, c, self))
	require.NoError(t, writeGreeting(c, self, from))
	return c
}

// takeGreeting reads a greeting and returns its sender.
func takeGreeting(t *testing.T, c net.Conn, self dmutex.NodeID) (from dmutex.NodeID) {
	t.Helper()
	from, err := readGreeting(c, self)
	require.NoError(t, err)
	return from
}

func sendByHand(t *testing.T, c net.Conn, frame string) {
	t.Helper()
	_, err := c.Write(appendFrame(nil, []byte(frame)))
	require.NoError(t, err)
}

// readByHand reads the next frame that is not a heartbeat.
func readByHand(t *testing.T, c net.Conn) string {
	t.Helper()
	for {
		var header [headerSize]byte
		_, err := io.ReadFull(c, header[:])
		require.NoError(t, err)
		size := binary.BigEndian.Uint32(header[:])
		if size == question {
			continue
		}
		frame := make([]byte, size)
		_, err = io.ReadFull(c, frame)
		require.NoError(t, err)
		if len(frame) > 0 {
			return string(frame)
		}
	}
}

// requireEnd reads until the other side has ended the connection.
func requireEnd(t *testing.T, c net.Conn) (read []byte) {
	t.Helper()
	read, err := io.ReadAll(c)
	var timeout net.Error
	if err != nil && errors.As(err, &timeout) {
		require.False(t, timeout.Timeout(), "the connection stays")
	}
	return read
}

func next(t *testing.T, got <-chan arrival) arrival {
	t.Helper()
	select {
	case a := <-got:
		return a
	case <-time.After(patience):
		require.FailNow(t, "no frame has arrived")
		return arrival{}
	}
}

func TestGreetings(t *testing.T) {
	l, got := openLink(t, 2, defaultPace)
	good := string(greetingBytes(3, 2))
	for name, greeting := range map[string]string{
		"another protocol": "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
		"another version":  "dmutex\x00\x01" + good[8:],
		"another receiver": string(greetingBytes(3, 1)),
		"a stranger":       string(greetingBytes(9, 2)),
		"nobody":           string(greetingBytes(0, 2)),
		"ourselves":        string(greetingBytes(2, 2)),
		"one to be dialed": string(greetingBytes(1, 2)),
	} {
		t.Run(name, func(t *testing.T) {
			c := dialByHand(t, l)
			_, err := io.WriteString(c, greeting+string(appendFrame(nil, []byte("forged"))))
			require.NoError(t, err)
			require.Empty(t, requireEnd(t, c), "it answers")
		})
	}
	c := dialByHand(t, l)
	_, err := io.WriteString(c, good+string(appendFrame(nil, []byte("genuine"))))
	require.NoError(t, err)
	require.Equal(t, arrival{3, "genuine"}, next(t, got))
	require.Empty(t, got)
}

func greetingBytes(from, to dmutex.NodeID) []byte {
	var b bytes.Buffer
	_ = writeGreeting(&b, from, to) // a buffer takes everything
	return b.Bytes()
}

// A process that connects and says nothing is disconnected.
func TestGreetingDeadline(t *testing.T) {
	pace := defaultPace
	pace.greeting = 50 * time.Millisecond
	l, _ := openLink(t, 1, pace)
	for _, beginning := range []string{"", greetingMark} {
		c := dialByHand(t, l)
		_, err := io.WriteString(c, beginning)
		require.NoError(t, err)
		requireEnd(t, c)
	}
}

func TestFrameTooLong(t *testing.T) {
	pace := defaultPace
	pace.heartbeat = time.Hour // else the connection ends for being silent
	l, got := openLink(t, 1, pace)
	c := greetByHand(t, l, 2)
	sendByHand(t, c, "good")
	_, err := c.Write([]byte{0, 1, 0, 1}) // one byte more than maxFrame
	require.NoError(t, err)
	requireEnd(t, c)
	require.Equal(t, arrival{2, "good"}, next(t, got))

	c = greetByHand(t, l, 2) // the node may come back
	sendByHand(t, c, "better")
	require.Equal(t, arrival{2, "better"}, next(t, got))
}

// A node that connects again and again has one connection. The link keeps nothing of
// the others.
func TestManyConnections(t *testing.T) {
	pace := defaultPace
	pace.grace = time.Millisecond
	l, _ := openLink(t, 1, pace)
	before := runtime.NumGoroutine()
	conns := make([]net.Conn, 100)
	for i := range conns {
		conns[i] = greetByHand(t, l, 2)
	}
	for _, c := range conns[:len(conns)-1] {
		requireEnd(t, c)
	}
	for late := time.Now().Add(patience); ; runtime.Gosched() {
		if runtime.NumGoroutine() <= before+2 { // of one connection: one reads, one writes
			break
		}
		require.True(t, time.Now().Before(late), "%d goroutines are kept", runtime.NumGoroutine()-before)
	}
}

// A link answers a connection, and then a newer one. The newer one stays even if its
// goroutine runs before that of the older one.
func TestNewestConnectionOvertakes(t *testing.T) {
	pace := defaultPace
	pace.grace = time.Millisecond
	l, _ := openLink(t, 1, pace)
	old, far := net.Pipe()
	byHand(t, far)
	go func() {
		_ = writeGreeting(far, 2, 1)
		_, _ = readGreeting(far, 2)
	}()
	p, served, err := l.answer(old)
	require.NoError(t, err)
	c := greetByHand(t, l, 2)
	require.NoError(t, l.Send(2, []byte("to the new")))
	require.Equal(t, "to the new", readByHand(t, c))
	require.NoError(t, far.Close())
	p.serve(served)
	require.NoError(t, l.Send(2, []byte("also")))
	require.Equal(t, "also", readByHand(t, c))
}

// bubbleLink returns a link with one connection, to node 2, and the other end of the
// connection. Nothing accepts connections in a bubble, so the test connects by hand.
func bubbleLink(t *testing.T, logger *slog.Logger) (l *Link, got chan arrival, c net.Conn) {
	t.Helper()
	l, got = closedLink(t, Config{Logger: logger}, defaultPace)
	c = knock(l, nil)
	greet(t, c, 2, 1)
	return l, got, c
}

// closedLink returns a link of node 1 that accepts no connection: knock connects to it.
func closedLink(t *testing.T, config Config, pace pace) (l *Link, got chan arrival) {
	t.Helper()
	config.Self, config.Listen, config.Peers = 1, "127.0.0.1:0", map[dmutex.NodeID]string{2: ""}
	l, err := newLink(config, pace)
	require.NoError(t, err)
	got = make(chan arrival)
	l.serve(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { got <- arrival{from, string(frame)} })})
	l.running.Go(l.keepAlive)
	return l, got
}

// knock connects to a link, from the address given unless that is nil.
func knock(l *Link, from net.Addr) net.Conn {
	near, far := net.Pipe()
	l.admit(fromAddr{near, from})
	return far
}

// A fromAddr is a connection that says where it comes from.
type fromAddr struct {
	net.Conn
	addr net.Addr
}

func (c fromAddr) RemoteAddr() net.Addr {
	if c.addr == nil {
		return c.Conn.RemoteAddr()
	}
	return c.addr
}

// A peer that sends nothing, not even a heartbeat, is disconnected within eight
// seconds.
func TestSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got, c := bubbleLink(t, nil)
		heartbeat := make([]byte, headerSize)
		for range 20 { // while it answers, it stays connected
			_, err := io.ReadFull(c, heartbeat)
			require.NoError(t, err)
			require.Equal(t, appendFrame(nil, nil), heartbeat)
			_, err = c.Write(heartbeat)
			require.NoError(t, err)
		}
		sendByHand(t, c, "frame")
		require.Equal(t, arrival{2, "frame"}, <-got)
		before := time.Now()
		requireEnd(t, byHand(t, c))
		require.LessOrEqual(t, time.Since(before), 8*time.Second)
		require.NoError(t, l.Close())
	})
}

// A peer does not count as silent while the delivery of its frame takes long.
func TestSlowDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, got, c := bubbleLink(t, nil)
		go func() { _, _ = io.Copy(io.Discard, c) }() // heartbeats
		for _, frame := range []string{"one", "two"} {
			sendByHand(t, c, frame)
			time.Sleep(time.Minute)
			require.Equal(t, arrival{2, frame}, <-got)
		}
		require.NoError(t, l.Close())
	})
}

// Close lets a peer that is a little late read what was sent to it, such as the last word of a stream:
// without that, the peer would wait seconds for it. A peer that does not read holds up Close for a moment.
func TestCloseLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, c := bubbleLink(t, nil)
		require.NoError(t, l.peers[2].send([]byte("farewell")))
		go func() {
			time.Sleep(defaultPace.grace / 2)
			require.Equal(t, "farewell", readByHand(t, c))
		}()
		start := time.Now()
		require.NoError(t, l.Close())
		require.Equal(t, defaultPace.grace/2, time.Since(start))

		l, _, _ = bubbleLink(t, nil)
		require.NoError(t, l.peers[2].send([]byte("farewell")))
		start = time.Now()
		require.NoError(t, l.Close())
		require.Equal(t, time.Second, time.Since(start), "the comment on Close says so")
	})
}

// A peer that sends a frame byte by byte and never completes it counts as
// silent.
func TestDribble(t *testing.T) {
	pace := defaultPace
	pace.heartbeat, pace.patience = 10*time.Millisecond, 20
	l, got := openLink(t, 1, pace)
	c := greetByHand(t, l, 2)
	_, err := c.Write(binary.BigEndian.AppendUint32(nil, maxFrame))
	require.NoError(t, err)
	for heartbeat := make([]byte, headerSize); err == nil; _, err = io.ReadFull(c, heartbeat) {
		_, _ = c.Write([]byte{'x'})
	}
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "the connection stays")
	require.Empty(t, got)
}

// A frame that is sent without a connection waits for the next one.
func TestRedial(t *testing.T) {
	listener := listenByHand(t)
	l, got := openLink(t, 2, defaultPace)
	require.NoError(t, l.Send(1, []byte("0")))
	require.NoError(t, l.SetPeer(1, listener.Addr().String()))
	c := acceptByHand(t, listener, 1, 2)
	require.Equal(t, "0", readByHand(t, c))

	c.Close()
	c, err := listener.Accept() // it dials again
	require.NoError(t, err)
	c.Close() // but is refused
	c = acceptByHand(t, listener, 1, 2)
	require.NoError(t, l.Send(1, []byte("1")))
	require.Equal(t, "1", readByHand(t, c))

	moved := listenByHand(t)
	require.NoError(t, l.SetPeer(1, moved.Addr().String()))
	requireEnd(t, c)
	c = acceptByHand(t, moved, 1, 2)
	sendByHand(t, c, "from the new address")
	require.Equal(t, arrival{1, "from the new address"}, next(t, got))
}

// A peer that dials connects again when its address changes. Frames for it wait meanwhile.
func TestMoveOfDialingPeer(t *testing.T) {
	l, got := openLink(t, 1, defaultPace)
	require.NoError(t, l.SetPeer(2, "127.0.0.1:1"))
	c := greetByHand(t, l, 2)
	require.NoError(t, l.SetPeer(2, "127.0.0.1:1")) // which changes nothing
	sendByHand(t, c, "from the old address")
	require.Equal(t, arrival{2, "from the old address"}, next(t, got))
	require.NoError(t, l.SetPeer(2, "127.0.0.1:2"))
	requireEnd(t, c)
	require.NoError(t, l.Send(2, []byte("waits")))
	require.NoError(t, l.SetPeer(2, "127.0.0.1:3"))
	c = greetByHand(t, l, 2)
	require.Equal(t, "waits", readByHand(t, c))
}

// If a peer moves while the link dials it, the link drops the old address and
// dials the new one at once.
func TestMoveWhileDialing(t *testing.T) {
	listener, moved := listenByHand(t), listenByHand(t)
	pace := defaultPace
	pace.greeting = time.Hour
	l, got := openLink(t, 2, pace)
	require.NoError(t, l.SetPeer(1, listener.Addr().String()))
	c := meetByHand(t, listener)
	takeGreeting(t, c, 1)
	old := l.peers[1]
	require.NoError(t, l.Send(1, []byte("waits")))
	require.NoError(t, l.SetPeer(1, moved.Addr().String()))
	requireEnd(t, c)
	require.Nil(t, old.take(nil, 0, nil), "a connection to the old address is not used any more")
	c = acceptByHand(t, moved, 1, 2)
	require.Equal(t, "waits", readByHand(t, c))
	sendByHand(t, c, "from the new address")
	require.Equal(t, arrival{1, "from the new address"}, next(t, got))
}

// A link hangs up on a node that does not answer the greeting.
func TestNoAnswer(t *testing.T) {
	pace := defaultPace
	pace.greeting = 50 * time.Millisecond
	listener := listenByHand(t)
	_, _ = openLinkWith(t, Config{Self: 2, Peers: map[dmutex.NodeID]string{1: listener.Addr().String()}}, pace)
	for range 2 {
		c, err := listener.Accept()
		require.NoError(t, err)
		read := requireEnd(t, byHand(t, c)) // a part of the greeting, if writing it took too long
		require.True(t, bytes.HasPrefix(greetingBytes(2, 1), read), "%x", read)
	}
}

// The limit of the wait between attempts doubles from minRedial to maxRedial. Each wait
// is drawn between half of the limit and the limit.
func TestBackoff(t *testing.T) {
	pace := defaultPace
	pace.minRedial, pace.maxRedial = time.Millisecond, 8*time.Millisecond
	var drawn []time.Duration
	enough := make(chan struct{})
	pace.jitter = func(n time.Duration) time.Duration {
		if drawn = append(drawn, n); len(drawn) == 6 {
			close(enough)
		}
		return n - 1
	}
	const nobody = "127.0.0.1:1" // another process might take a free port, but not this one
	l, _ := openLinkWith(t, Config{Self: 2, Peers: map[dmutex.NodeID]string{1: nobody}}, pace)
	select {
	case <-enough:
	case <-time.After(patience):
		require.FailNow(t, "it has given up")
	}
	require.NoError(t, l.Close())
	ms := time.Millisecond
	want := []time.Duration{ms/2 + 1, ms + 1, 2*ms + 1, 4*ms + 1, 4*ms + 1, 4*ms + 1}
	require.Equal(t, want, drawn[:6])
}

// A short connection does not reset the waits: otherwise two processes that
// replace each other would do so at full speed.
func TestBackoffOfShortConnections(t *testing.T) {
	pace := defaultPace
	pace.minRedial, pace.maxRedial, pace.greeting = time.Millisecond, 8*time.Millisecond, time.Hour
	drawn := make(chan time.Duration, 10)
	pace.jitter = func(n time.Duration) time.Duration {
		drawn <- n
		return n - 1
	}
	listener := listenByHand(t)
	_, _ = openLinkWith(t, Config{Self: 2, Peers: map[dmutex.NodeID]string{1: listener.Addr().String()}}, pace)
	ms := time.Millisecond
	for _, want := range []time.Duration{ms/2 + 1, ms + 1, 2*ms + 1, 4*ms + 1, 4*ms + 1} {
		require.NoError(t, acceptByHand(t, listener, 1, 2).Close())
		require.Equal(t, want, <-drawn)
	}
}

// A link refuses another node at the address of a peer.
func TestWrongNodeAnswers(t *testing.T) {
	listener := listenByHand(t)
	l, got := openLink(t, 3, defaultPace)
	require.NoError(t, l.SetPeer(1, listener.Addr().String()))
	c := meetByHand(t, listener)
	takeGreeting(t, c, 1)
	require.NoError(t, writeGreeting(c, 2, 3))
	sendByHand(t, c, "forged")
	requireEnd(t, c)
	c = acceptByHand(t, listener, 1, 3)
	sendByHand(t, c, "genuine")
	require.Equal(t, arrival{1, "genuine"}, next(t, got))
}

// A peer that stops reading gets all accepted frames in order when it reads again,
// including one that the socket took only in part.
func TestSlowReader(t *testing.T) {
	l, _ := openLink(t, 1, defaultPace)
	c := greetByHand(t, l, 2)
	frame := make([]byte, 10_000)
	accepted := uint64(0)
	for full := false; !full || accepted <= uint64(backlog/len(frame)); { // the link takes up what waits, and then more may wait
		binary.BigEndian.PutUint64(frame, accepted)
		err := l.Send(2, frame)
		if full = err != nil; full {
			require.ErrorIs(t, err, transport.ErrFull)
			runtime.Gosched()
			continue
		}
		accepted++
	}
	for i := range accepted {
		got := readByHand(t, c)
		require.Len(t, got, len(frame))
		require.Equal(t, i, binary.BigEndian.Uint64([]byte(got)))
	}
	require.NoError(t, l.Send(2, []byte("again")))
	require.Equal(t, "again", readByHand(t, c))
}

// The backlog for an absent peer is bounded.
func TestBacklog(t *testing.T) {
	l, _ := openLink(t, 1, defaultPace)
	frame := make([]byte, maxFrame)
	for range backlog / (headerSize + maxFrame) {
		require.NoError(t, l.Send(2, frame))
	}
	require.ErrorIs(t, l.Send(2, frame), transport.ErrFull)
	require.NoError(t, l.Send(3, frame))
}

// All connections break in the middle of the traffic. This loses frames, but no
// messages.
func TestStreamOverBreak(t *testing.T) {
	a := NewAuthority(t)
	t.Run("plain", func(t *testing.T) { streamOverBreak(t, func(dmutex.NodeID) *tls.Config { return nil }) })
	t.Run("TLS", func(t *testing.T) {
		streamOverBreak(t, func(id dmutex.NodeID) *tls.Config { return a.Config(a.Node(id)) })
	})
	t.Run("to another authority", func(t *testing.T) {
		issuer, b := a, NewAuthority(t)
		streamOverBreak(t, func(id dmutex.NodeID) *tls.Config {
			both := issuer.Config(issuer.Node(id))
			both.RootCAs.AddCert(a.Cert)
			both.RootCAs.AddCert(b.Cert)
			return both
		}, func(l *Link) {
			issuer = b
			require.NoError(t, l.SetTLS(b.Config(b.Node(l.self))))
		})
	})
}

func streamOverBreak(t *testing.T, secure func(dmutex.NodeID) *tls.Config, before ...func(*Link)) {
	var nodes []*Link
	links := linktest.Links{New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
		return func(self dmutex.NodeID) transport.Link {
			l, err := newLink(Config{Self: self, Listen: "127.0.0.1:0", TLS: secure(self)}, defaultPace)
			require.NoError(t, err)
			for _, other := range nodes {
				require.NoError(t, l.SetPeer(other.self, other.Addr().String()))
				require.NoError(t, other.SetPeer(self, l.Addr().String()))
			}
			nodes = append(nodes, l)
			return l
		}
	}}
	linktest.TestStream(t, links, func() {
		for _, l := range nodes {
			for _, change := range before {
				change(l)
			}
		}
		for _, l := range nodes {
			for _, p := range l.peers {
				p.mu.Lock()
				if p.conn != nil {
					p.lose(p.conn, net.ErrClosed)
				}
				p.mu.Unlock()
			}
		}
	})
}
