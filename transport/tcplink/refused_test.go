package tcplink

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
)

// lines returns a logger, and its records without the time.
func lines() (*slog.Logger, <-chan string) {
	told := make(lineWriter, 1000)
	return slog.New(slog.NewTextHandler(told, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})), told
}

type lineWriter chan string

func (w lineWriter) Write(line []byte) (int, error) {
	w <- strings.TrimSuffix(string(line), "\n")
	return len(line), nil
}

// Repeated refusals do not fill the log, and our own Close is not logged.
func TestLogOfRefusals(t *testing.T) {
	logger, told := lines()
	take := func(n int) (records []string) {
		for range n {
			select {
			case line := <-told:
				records = append(records, line)
			case <-time.After(patience):
				require.FailNow(t, "waited in vain for a record", "%q", records)
			}
		}
		return records
	}
	l, err := New(Config{Self: 1, Listen: "127.0.0.1:0", Logger: logger})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = c.Write(bytes.Repeat([]byte("nonsense"), 3))
		require.NoError(t, err)
		_, err = io.ReadAll(c) // the link counts the refusal before it closes
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	const why = ` node=1 from=127.0.0.1 err="the greeting is of another protocol, or of another version of this one"`
	require.Equal(t, []string{`level=WARN msg="tcplink: connection refused"` + why}, take(1))
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	for i := range 3 { // another port is not another reason
		l.refuse(from, nil, &net.OpError{Op: "read", Addr: &net.TCPAddr{Port: i}, Err: errors.New("reset")})
	}
	require.Equal(t, []string{`level=WARN msg="tcplink: connection refused" node=1 from=127.0.0.1 err="read: reset"`}, take(1))
	require.NoError(t, l.Close())
	require.Equal(t, []string{
		`level=WARN msg="tcplink: connection refused"` + why + " again=2",
		`level=WARN msg="tcplink: connection refused" node=1 from=127.0.0.1 err="read: reset" again=2`,
	}, take(2))
	l.refuse(from, nil, net.ErrClosed)
	require.Empty(t, told)
}

// The log says why a peer cannot be reached: each reason once, and later how often again.
func TestLogOfDialing(t *testing.T) {
	listener := listenByHand(t)
	var text bytes.Buffer
	pace := defaultPace
	pace.maxRedial, pace.greeting = pace.minRedial, time.Hour
	l, _ := openLinkWith(t, Config{
		Self: 3, Peers: map[dmutex.NodeID]string{1: listener.Addr().String()}, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	}, pace)
	refuse := func(speaks dmutex.NodeID) {
		c := meetByHand(t, listener)
		takeGreeting(t, c, 1)
		require.NoError(t, writeGreeting(c, speaks, 3))
		requireEnd(t, c)
	}
	for _, speaks := range []dmutex.NodeID{2, 2, 4, 2, 4} {
		refuse(speaks)
	}
	meetByHand(t, listener) // the last refusal is counted
	require.NoError(t, l.Close())
	var told []string
	for record := range strings.SplitSeq(text.String(), "\n") {
		if _, why, found := strings.Cut(record, "cannot connect"); found {
			told = append(told, why[strings.Index(why, "peer="):])
		}
	}
	want := []string{}
	for _, end := range []string{`node 2 answers there"`, `node 4 answers there"`, `node 2 answers there" again=2`, `node 4 answers there" again=1`} {
		want = append(want, fmt.Sprintf(`peer=1 address=%s err="no greeting: %s`, listener.Addr(), end))
	}
	require.Equal(t, want, told)
}

// Long names in a stranger's certificate make no long records.
func TestLogOfLongNames(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	pretender := func() *Authority { // pretenders have the same name, and different keys
		return &Authority{other.Below(&x509.Certificate{
			Subject: pkix.Name{CommonName: strings.Repeat("name", 10_000)}, SubjectKeyId: []byte{1},
		})}
	}
	cert := pretender().Node(3)
	cert.Certificate = append(cert.Certificate, pretender().Cert.Raw)

	var text bytes.Buffer
	l, _ := openLinkWith(t, Config{Self: 2, TLS: a.Config(a.Node(2)), Logger: slog.New(slog.NewTextHandler(&text, nil))}, defaultPace)
	nc := dialByHand(t, l)
	c := tls.Client(nc, stranger(cert))
	_, _ = c.Write(greetingBytes(3, 2))
	requireEnd(t, c)  // with an alert
	requireEnd(t, nc) // after the record
	require.NoError(t, l.Close())
	require.Contains(t, text.String(), "namename")
	require.Less(t, text.Len(), 2*maxReason)
}

// A stuck log delays neither frames nor peers that connect, and refused connections are
// closed. Only Close waits for the log.
func TestStuckLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		l, got, c := bubbleLink(t, slog.New(slog.NewTextHandler(stuckLog(release), nil)))
		synctest.Wait()
		before := runtime.NumGoroutine()
		for range 3000 {
			stranger := knock(l, nil)
			_, err := stranger.Write(bytes.Repeat([]byte("nonsense"), 3))
			require.NoError(t, err)
			requireEnd(t, stranger)
		}
		synctest.Wait()
		// The process has goroutines outside of the bubble, which come and go.
		require.Less(t, runtime.NumGoroutine(), before+100)
		for range 20 { // heartbeats go on
			_, err := io.ReadFull(c, make([]byte, headerSize))
			require.NoError(t, err)
			_, err = c.Write(make([]byte, headerSize))
			require.NoError(t, err)
		}
		requireEnd(t, c) // and silence is noticed
		c = knock(l, nil)
		greet(t, c, 2, 1)
		sendByHand(t, c, "frame")
		require.Equal(t, arrival{2, "frame"}, <-got)

		closed := make(chan error)
		go func() { closed <- l.Close() }()
		synctest.Wait()
		require.Empty(t, closed)
		close(release)
		require.NoError(t, <-closed)
	})
}

// A stuck log does not delay a peer that is dialed.
func TestStuckLogWhenDialing(t *testing.T) {
	release := make(chan struct{})
	listener := listenByHand(t)
	pace := defaultPace
	pace.maxRedial = pace.minRedial
	l, got := openLinkWith(t, Config{
		Self: 2, Peers: map[dmutex.NodeID]string{1: listener.Addr().String()},
		Logger: slog.New(slog.NewTextHandler(stuckLog(release), nil)),
	}, pace)
	t.Cleanup(func() { close(release) }) // before the link is closed
	c, err := listener.Accept()
	require.NoError(t, err)
	require.NoError(t, c.Close()) // a reason to log
	c = acceptByHand(t, listener, 1, 2)
	sendByHand(t, c, "frame")
	require.Equal(t, arrival{1, "frame"}, next(t, got))
	require.NoError(t, l.Send(1, []byte("answer")))
	require.Equal(t, "answer", readByHand(t, c))
}

// A stuckLog blocks its writers until it is closed.
type stuckLog chan struct{}

func (l stuckLog) Write(record []byte) (int, error) {
	<-l
	return len(record), nil
}

// A link takes the logger of its node, if it has none of its own.
func TestLogger(t *testing.T) {
	for _, own := range []bool{false, true} {
		ours, told := lines()
		nodes, toldNode := lines()
		config := Config{Self: 1, Listen: "127.0.0.1:0"}
		if own {
			config.Logger = ours
		}
		l, err := New(config)
		require.NoError(t, err)
		require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}, Logger: nodes}))
		l.refuse(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, nil, errors.New("reason"))
		require.NoError(t, l.Close())
		if !own {
			told, toldNode = toldNode, told
		}
		require.Len(t, told, 1)
		require.Contains(t, <-told, "node=1")
		require.Empty(t, toldNode)
	}
}

// A link does not log that a connection is lost when its own Close ends the connection.
func TestLogOfClose(t *testing.T) {
	var text [2]bytes.Buffer
	var links [2]*Link
	heard := make(chan struct{})
	for i := range links {
		var err error
		links[i], err = New(Config{
			Self: dmutex.NodeID(i + 1), Listen: "127.0.0.1:0", Peers: map[dmutex.NodeID]string{dmutex.NodeID(2 - i): ""},
			Logger: slog.New(slog.NewTextHandler(&text[i], nil)),
		})
		require.NoError(t, err)
		require.NoError(t, links[i].Open(transport.Host{Deliver: linktest.Each(func(dmutex.NodeID, []byte) { close(heard) })}))
	}
	require.NoError(t, links[1].SetPeer(1, links[0].Addr().String()))
	require.NoError(t, links[1].Send(1, []byte("frame")))
	<-heard
	for i, l := range links {
		require.NoError(t, l.Close())
		require.Contains(t, text[i].String(), "connected")
	}
	require.NotContains(t, text[0].String(), "connection lost")
}

// The ports of this node in an error do not make it another reason: neither of a connection, nor of a
// question to a name server.
func TestReasonWithoutPorts(t *testing.T) {
	for port, want := range map[int]string{1: "read tcp: reset", 2: "dial tcp: lookup node2.example on 10.0.0.2:53: i/o timeout", 3: "dial tcp: lookup node2.example: no such host"} {
		for range 2 {
			port += 10
			here := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 3), Port: port}
			err := map[int]error{
				1: &net.OpError{Op: "read", Net: "tcp", Source: here, Err: errors.New("reset")},
				2: &net.OpError{Op: "dial", Net: "tcp", Source: here, Err: &net.DNSError{
					Err: fmt.Sprintf("read udp 10.0.0.3:%d->10.0.0.2:53: i/o timeout", port), Name: "node2.example", Server: "10.0.0.2:53",
				}},
				3: &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "node2.example"}},
			}[port%10]
			require.EqualError(t, reason(err), want)
		}
	}
}

// A connection of a peer that is removed while it is greeted is no connection to a closed link.
func TestRefusalOfARemovedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger, told := lines()
		l, _, first := bubbleLink(t, logger)
		go func() { _, _ = io.Copy(io.Discard, first) }() // it is asked, and does not answer
		second := knock(l, nil)
		require.NoError(t, writeGreeting(second, 2, 1))
		time.Sleep(defaultPace.grace / 2)
		l.RemovePeer(2)
		requireEnd(t, byHand(t, second))
		require.Contains(t, <-told, "tcplink: connected")
		require.Contains(t, <-told, `msg="tcplink: connection refused" node=1 from="" err="node 2 is no longer a peer with this address"`)
		require.NoError(t, l.Close())
	})
}
