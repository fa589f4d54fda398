package tcplink

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"

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
		`level=WARN msg="tcplink: connections refused again" node=1 from=127.0.0.1 error=reset count=73`,
		`level=WARN msg="tcplink: more connections refused" node=1 count=11`,
	}, take())
	require.NoError(t, l.Close())
	l.refuse(from, net.ErrClosed)
	require.Equal(t, []string{""}, take())
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
