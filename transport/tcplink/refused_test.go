package tcplink

import (
	"bytes"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// Whoever is refused again and again fills no log, and our own Close is no news.
func TestLogOfRefusals(t *testing.T) {
	var l *Link
	var text bytes.Buffer
	take := func() []string {
		l.refusals.mu.Lock() // all is written under it
		defer l.refusals.mu.Unlock()
		defer text.Reset()
		return strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	}
	logger := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	var err error
	l, err = New(Config{Self: 1, Listen: "127.0.0.1:0", Logger: logger})
	require.NoError(t, err)
	require.NoError(t, l.Open(func(dmutex.NodeID, []byte) {}))
	for range 3 {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		_, err = c.Write(bytes.Repeat([]byte("nonsense"), 3))
		require.NoError(t, err)
		_, err = io.ReadAll(c) // until it is closed, which is after the record
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	const why = ` node=1 from=127.0.0.1 error="this is not the protocol of this link, or another version of it"`
	require.Equal(t, []string{`level=WARN msg="tcplink: connection refused"` + why}, take())
	l.sumUp()
	require.Equal(t, []string{`level=WARN msg="tcplink: connections refused again"` + why + " count=2"}, take())
	l.sumUp()
	require.Equal(t, []string{""}, take())

	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	for i := range maxRefusals + 10 { // others invent reasons
		l.refuse(from, fmt.Errorf("reason %d", i))
		l.refuse(from, &net.OpError{Op: "read", Addr: &net.TCPAddr{Port: i}, Err: errors.New("reset")})
	}
	require.Len(t, take(), maxRefusals)
	l.sumUp()
	require.ElementsMatch(t, []string{
		`level=WARN msg="tcplink: connections refused again" node=1 from=127.0.0.1 error="read: reset" count=73`,
		`level=WARN msg="tcplink: more connections refused" node=1 count=11`,
	}, take())
	require.NoError(t, l.Close())
	l.refuse(from, net.ErrClosed)
	require.Equal(t, []string{""}, take())
}

// Why a peer cannot be reached is told once for each reason, not only for the
// first, and again after it was reached; though not for ever.
func TestLogOfDialling(t *testing.T) {
	listener := listenByHand(t)
	var text bytes.Buffer
	pace := defaultPace
	pace.maxRedial, pace.greeting = pace.minRedial, time.Hour
	l, _ := openLinkWith(t, Config{
		Self: 3, Peers: map[dmutex.NodeID]string{1: listener.Addr().String()}, Logger: slog.New(slog.NewTextHandler(&text, nil)),
	}, pace)
	refuse := func(speaks dmutex.NodeID) {
		c, err := listener.Accept()
		require.NoError(t, err)
		byHand(t, c)
		_, err = readGreeting(c, 1)
		require.NoError(t, err)
		require.NoError(t, writeGreeting(c, speaks, 3))
		requireEnd(t, c)
	}
	for _, speaks := range []dmutex.NodeID{2, 2, 4, 2, 4} {
		refuse(speaks)
	}
	c := acceptByHand(t, listener, 1, 3)
	c.Close()
	for i := range dmutex.NodeID(20) {
		refuse(2 + i)
	}
	require.NoError(t, l.Close())
	var told []string
	for record := range strings.SplitSeq(text.String(), "\n") {
		if _, why, found := strings.Cut(record, "cannot connect"); found {
			told = append(told, why[strings.Index(why, "peer="):])
		}
	}
	want := []string{}
	for _, speaks := range []int{2, 4, 2, 3, 4, 5, 6, 7, 8, 9} {
		want = append(want, fmt.Sprintf(`peer=1 address=%s error="no greeting: it is node %d"`, listener.Addr(), speaks))
	}
	require.Equal(t, want, told)
}

// A stranger's certificate does not choose how much is logged.
func TestLogOfLongNames(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	pretender := func() (tls.Certificate, *Authority) { // they have the same name, and different keys
		cert := other.sign(&x509.Certificate{
			Subject: pkix.Name{CommonName: strings.Repeat("name", 10_000)}, SubjectKeyId: []byte{1},
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		})
		return cert, &Authority{t: t, cert: cert.Leaf, key: cert.PrivateKey.(crypto.Signer)}
	}
	_, issuer := pretender()
	shown, _ := pretender()
	cert := issuer.Node(3)
	cert.Certificate = append(cert.Certificate, shown.Certificate[0])

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

// A log that is stuck keeps nobody waiting who sends.
func TestStuckLog(t *testing.T) {
	pace := defaultPace
	pace.heartbeat, pace.patience = 10*time.Millisecond, 5
	stuck := stuckLog{at: make(chan bool), end: make(chan bool)}
	l, _ := openLinkWith(t, Config{Self: 1, Logger: slog.New(slog.NewTextHandler(stuck, nil))}, pace)
	t.Cleanup(func() { close(stuck.end) }) // before the link is closed
	greetByHand(t, l, 2)
	<-stuck.at
	sent := make(chan error)
	go func() { sent <- l.Send(2, []byte("frame")) }()
	select {
	case err := <-sent:
		require.NoError(t, err)
	case <-time.After(patience):
		require.FailNow(t, "Send waits for the log")
	}
}

// A stuckLog gets stuck when it is told of silence.
type stuckLog struct{ at, end chan bool }

func (l stuckLog) Write(record []byte) (int, error) {
	if bytes.Contains(record, []byte("silent")) {
		close(l.at)
		<-l.end
	}
	return len(record), nil
}

// Of two that were connected, neither tells of a loss that is its own Close.
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
		require.NoError(t, links[i].Open(func(dmutex.NodeID, []byte) { close(heard) }))
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
