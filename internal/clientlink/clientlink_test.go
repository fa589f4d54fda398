package clientlink

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/protocol"
)

type message = clientsession.Message

// The examples of docs/clients.md.
var examples = []struct {
	m    message
	wire string
}{
	{message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Session: "S", Name: "n", Fresh: true, Number: 1}, "98 01 01 01 a153 a16e 01 01 90"},
	{message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Session: "S", Name: "n", Number: 2, Wants: []uint64{7, 300}}, "98 01 01 01 a153 a16e 00 02 92 07 cd012c"},
	{message{Kind: clientsession.Beat}, "91 02"},
	{message{Kind: clientsession.Ask, Number: 7, Lock: "abc", Try: true}, "95 03 07 a3616263 01 90"},
	{message{Kind: clientsession.Ask, Number: 8, Lock: "abc", Shares: true}, "95 03 08 a3616263 02 90"},
	{message{Kind: clientsession.Ask, Number: 7, Lock: "abc", Of: []uint64{1, 300}, Session: "S"}, "96 03 07 a3616263 00 92 01 cd012c a153"},
	{message{Kind: clientsession.Drop, Number: 7}, "92 04 07"},
	{message{Kind: clientsession.Bye}, "91 05"},
	{message{Kind: clientsession.Moved, Number: 7}, "92 06 07"},
	{message{Kind: clientsession.Confirm, For: 9_000_000_000, Length: 10_000_000_000}, "93 07 cf0000000218711a00 cf00000002540be400"},
	{message{Kind: clientsession.Confirm, Length: 10_000_000_000, Text: "no"}, "94 07 00 cf00000002540be400 a26e6f"},
	{message{Kind: clientsession.Granted, Number: 7, Fence: 1 << 50, Node: 3}, "94 08 07 cf0004000000000000 03"},
	{message{Kind: clientsession.Refused, Number: 7, Code: clientsession.Busy, Text: "no"}, "94 09 07 01 a26e6f"},
	{message{Kind: clientsession.Leave}, "91 0a"},
	{message{Kind: clientsession.Over, Code: clientsession.Lapsed, Text: "no"}, "93 0b 06 a26e6f"},
}

// frame returns a frame with that body.
func frame(t *testing.T, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	require.NoError(t, err)
	return append([]byte{0, byte(len(b))}, b...)
}

// A tape is a connection that reads from a Reader.
type tape struct {
	net.Conn
	io.Reader
}

func (t tape) Read(b []byte) (int, error) { return t.Reader.Read(b) }

func play(b []byte) *Conn { return New(tape{Reader: bytes.NewReader(b)}, 0) }

func TestMessages(t *testing.T) {
	var all []byte
	for _, x := range examples {
		require.Equal(t, frame(t, x.wire), Append(nil, &x.m))
		all = append(all, frame(t, x.wire)...)
	}
	r := play(all)
	for _, x := range examples {
		m, err := r.Read()
		require.NoError(t, err, x.wire)
		require.Equal(t, &x.m, m)
	}
}

// A message that no correct program sends is refused.
func TestRefused(t *testing.T) {
	for _, wire := range []string{
		"0000", "90", "90 00", "91 00", "91 0c", "92 02", "91 02 00", "91 cc", "92 04", "92 04 cc07",
		"97 01 02 a153 a16e 01 01 90", "97 01 01 a0 a16e 01 01 90", "94 03 07 a3616263 04", "94 03 07 a0 00",
		"95 03 07 a3616263 00 91 01", "96 03 07 a3616263 00 90 a153", "96 03 07 a3616263 00 91 01 a0",
		"93 0a 07 a26e6f", "93 07 cfffffffffffffffff cf00000002540be400", "98 01 01 01 a153 a16e 00 01 dd ffffffff",
	} {
		_, err := play(frame(t, wire)).Read()
		require.ErrorIs(t, err, dmutex.ErrPeer, wire)
	}
}

// FuzzRead checks that no bytes make Read panic, and that Append writes a message as Read read it.
func FuzzRead(f *testing.F) {
	for _, x := range examples {
		f.Add(Append(nil, &x.m))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := play(b).Read()
		if err != nil {
			return
		}
		again := Append(nil, m)
		require.Equal(t, b[:len(again)], again)
	})
}

// The longest message fits a frame.
func TestLongest(t *testing.T) {
	m := message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1<<64 - 1, Session: strings.Repeat("s", MaxWord), Name: strings.Repeat("n", MaxWord)}
	for range clientsession.MaxRequests {
		m.Wants = append(m.Wants, 1<<63|rand.Uint64())
	}
	got, err := play(Append(nil, &m)).Read()
	require.NoError(t, err)
	require.Equal(t, &m, got)
	long := message{Kind: clientsession.Over, Code: clientsession.Full, Text: strings.Repeat("x", 2000)}
	got, err = play(Append(nil, &long)).Read()
	require.NoError(t, err)
	require.Len(t, got.Text, 1000)
	long.Text = "" // as from an error without a text
	got, err = play(Append(nil, &long)).Read()
	require.NoError(t, err)
	require.Equal(t, "no reason was given", got.Text)
}

// A frame that is too long is refused before its body is read.
func TestTooLong(t *testing.T) {
	_, err := play([]byte{0xff, 0xff}).Read()
	require.ErrorIs(t, err, dmutex.ErrPeer)
}

// What speaks something else is refused by its first bytes, and not waited for.
func TestSpeaksSomethingElse(t *testing.T) {
	for said, why := range map[string]string{
		"\x16\x03\x01": "speaks TLS", "\x16\x03\x03": "speaks TLS", "GET": "\"GE\"", "\x00\x10G": "no client or member", "\x00\x00": "no client or member",
	} {
		_, err := New(&still{said: said}, 1000).Read()
		require.ErrorIs(t, err, dmutex.ErrPeer)
		require.ErrorContains(t, err, why)
	}
}

// A still connection has said something, and would block if more were read.
type still struct {
	net.Conn
	said string
}

func (s *still) Read(b []byte) (n int, err error) {
	if s.said == "" {
		panic("it is waited for")
	}
	n = copy(b, s.said)
	s.said = s.said[n:]
	return n, nil
}

// A tunnel is a connection without deadlines, such as a user's dialer may return.
type tunnel struct{ net.Conn }

func (tunnel) SetReadDeadline(time.Time) error  { return errors.ErrUnsupported }
func (tunnel) SetWriteDeadline(time.Time) error { return errors.ErrUnsupported }

// Hurry ends Read on any connection. If the connection has deadlines, earlier messages still arrive.
func TestHurry(t *testing.T) {
	for _, deadlines := range []bool{true, false} {
		near, far := net.Pipe()
		nc := near
		if !deadlines {
			nc = tunnel{near}
		}
		c, peer := New(nc, 1000), New(far, 1000)
		if deadlines {
			c.Send(message{Kind: clientsession.Bye})
		}
		c.Hurry()
		_, err := c.Read()
		require.Error(t, err)
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		if deadlines {
			msg, err := peer.Read()
			require.NoError(t, err)
			require.Equal(t, clientsession.Bye, msg.Kind)
		}
		require.NoError(t, <-closed)
		_, err = peer.Read()
		require.ErrorIs(t, err, io.EOF)
	}
}

// A connection whose peer reads nothing is closed once too much waits for it, before any timeout.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		near, far := net.Pipe()
		defer far.Close()
		c := New(near, 100)
		for range 100 {
			c.Send(message{Kind: clientsession.Beat})
		}
		_, err := c.Read()
		require.ErrorIs(t, err, io.ErrClosedPipe)
		require.NoError(t, c.Close())
		require.Zero(t, time.Since(begin))
	})
}

// A sticky is a connection that waits in Close.
type sticky struct {
	net.Conn
	closing, release chan struct{}
}

func (s sticky) Close() error {
	select {
	case s.closing <- struct{}{}:
	default:
	}
	<-s.release
	return s.Conn.Close()
}

// Send does not wait for a Close, and its buffer stays bounded: a member sends to all clients under one mutex. The Close
// of TLS waits for a peer that reads nothing, and the Close of natsclient for the server.
func TestSendDoesNotWaitForClose(t *testing.T) {
	for _, failed := range []bool{true, false} {
		near, far := net.Pipe()
		if failed {
			far.Close()
		} else {
			defer far.Close()
		}
		nc := sticky{near, make(chan struct{}, 1), make(chan struct{})}
		c := New(nc, 100)
		c.Send(message{Kind: clientsession.Beat})
		if failed {
			<-nc.closing
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			for range 100 {
				c.Send(message{Kind: clientsession.Beat})
			}
		}()
		select {
		case <-sent:
		case <-time.After(10 * time.Second):
			t.Fatal("Send waits")
		}
		c.mu.Lock()
		require.Less(t, len(c.out), 200)
		c.mu.Unlock()
		close(nc.release)
		require.NoError(t, c.Close())
	}
}
