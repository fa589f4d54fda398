package streamnet

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/certtest"
)

// A pair has two hosts with a process each, and a listener on the second.
type pair struct {
	*testing.T
	net      *Network
	a, b     *Host
	from, to *Process
	listener net.Listener
	start    time.Time
}

// inPair runs a test in a bubble.
func inPair(t *testing.T, test func(t *testing.T, p *pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{T: t, net: New(1), start: time.Now()}
		p.a, p.b = p.net.Host("10.0.0.1"), p.net.Host("10.0.0.2", "b.example")
		p.from, p.to = p.a.Process(), p.b.Process()
		p.listen()
		test(t, p)
	})
}

func (p *pair) listen() {
	var err error
	p.listener, err = p.to.Listen(p.Context(), "b.example:7000")
	require.NoError(p, err)
}

func (p *pair) dial(within time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(p.Context(), within)
	defer cancel()
	return p.from.Dial(ctx, "b.example:7000")
}

// connect returns both ends of a connection.
func (p *pair) connect() (near, far net.Conn) {
	near, err := p.dial(time.Hour)
	require.NoError(p, err)
	far, err = p.listener.Accept()
	require.NoError(p, err)
	return near, far
}

func (p *pair) passed() time.Duration { return time.Since(p.start) }

func (p *pair) read(c net.Conn, want string) {
	p.Helper()
	b := make([]byte, len(want))
	_, err := io.ReadFull(c, b)
	require.NoError(p, err)
	require.Equal(p, want, string(b))
}

func (p *pair) write(c net.Conn, text string) {
	p.Helper()
	n, err := c.Write([]byte(text))
	require.NoError(p, err)
	require.Equal(p, len(text), n)
}

// fails requires that a read returns an error of package net.
func (p *pair) fails(c net.Conn, want error) {
	p.Helper()
	_, err := c.Read(make([]byte, 1))
	require.ErrorIs(p, err, want)
	var of *net.OpError
	require.ErrorAs(p, err, &of)
}

// ends requires the end of a connection.
func (p *pair) ends(c net.Conn) {
	p.Helper()
	_, err := c.Read(make([]byte, 1))
	require.Equal(p, io.EOF, err)
}

func TestEnds(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		near, far := p.connect()
		require.Equal(t, "10.0.0.2:7000", near.RemoteAddr().String())
		require.Equal(t, near.LocalAddr(), far.RemoteAddr())
		require.Equal(t, near.RemoteAddr(), far.LocalAddr())
		require.Equal(t, p.listener.Addr(), far.LocalAddr())
		require.NoError(t, near.SetDeadline(time.Time{}))
		p.write(near, "hello")
		p.read(far, "hello")
		p.write(far, "well")
		p.write(near, "bye")
		p.read(near, "well")
		require.NoError(t, near.Close())
		require.ErrorIs(t, near.Close(), net.ErrClosed)
		_, err := near.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		p.fails(near, net.ErrClosed)
		p.read(far, "bye")
		_, err = far.Read(make([]byte, 1))
		require.Equal(t, io.EOF, err)
		p.write(far, "for nobody")
		p.ends(far)
		_, err = far.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
	})
}

// As in Linux: bytes for an end that is closed are answered by a reset, and so are those that were not read.
func TestReset(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		near, far := p.connect()
		require.NoError(t, far.Close())
		p.write(near, "unheard")
		_, err := near.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)

		near, far = p.connect()
		p.write(near, "unread")
		require.NoError(t, far.Close())
		p.fails(near, syscall.ECONNRESET)
		_, err = near.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.ECONNRESET)
		_, err = near.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)

		near, far = p.connect()
		require.Equal(t, 1, p.net.Reset(p.a, p.b, 5))
		p.write(near, "12345678")
		p.read(far, "12345")
		p.fails(far, syscall.ECONNRESET)
		p.fails(near, syscall.ECONNRESET)
		near, far = p.connect()
		require.Equal(t, 1, p.net.Reset(p.b, p.a, 0))
		p.fails(far, syscall.ECONNRESET)
		p.fails(near, syscall.ECONNRESET)
	})
}

func TestDial(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		_, err := p.from.Dial(t.Context(), "10.0.0.2:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = p.from.Dial(t.Context(), "c.example:1")
		_, ok := errors.AsType[*net.DNSError](err)
		require.True(t, ok)
		_, err = p.from.LookupHost(t.Context(), "c.example")
		require.Error(t, err)
		hosts, err := p.from.LookupHost(t.Context(), "b.example")
		require.NoError(t, err)
		require.Equal(t, []string{"10.0.0.2"}, hosts)
		require.Zero(t, p.passed())

		p.net.Set(p.a, p.b, Path{MinDelay: time.Second, MaxDelay: time.Second})
		_, err = p.dial(time.Second - 1)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, time.Second-1, p.passed())
		_, err = p.dial(2 * time.Second)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = p.from.Dial(ctx, "10.0.0.9:7000") // where nobody is
		require.ErrorIs(t, err, context.Canceled)
	})
}

func TestListen(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		_, err := p.to.Listen(t.Context(), ":7000")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		_, err = p.to.Listen(t.Context(), "10.0.0.1:7000")
		require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
		other, err := p.to.Listen(t.Context(), ":0")
		require.NoError(t, err)
		near, err := p.from.Dial(t.Context(), other.Addr().String())
		require.NoError(t, err)
		require.NoError(t, other.Close())
		require.ErrorIs(t, other.Close(), net.ErrClosed)
		_, err = other.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
		p.fails(near, syscall.ECONNRESET) // nobody has accepted it
		_, err = p.from.Dial(t.Context(), other.Addr().String())
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		for range backlog {
			p.from.Dial(t.Context(), "b.example:7000")
		}
		_, err = p.dial(time.Second / 2)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		time.AfterFunc(time.Second/2, func() { p.listener.Accept() })
		_, err = p.dial(2 * time.Second)
		require.NoError(t, err)
	})
}

func TestPath(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		near, far := p.connect()
		p.net.Set(p.a, p.b, Path{MinDelay: time.Second, MaxDelay: time.Second, Rate: 10, Window: 10})
		p.write(near, "0123456789") // it takes a second to send
		require.Zero(t, p.passed())
		p.read(far, "0123456789")
		require.Equal(t, 2*time.Second, p.passed())
		p.write(near, "0123456789")
		require.NoError(t, near.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := near.Write([]byte("x"))
		require.Zero(t, n)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 3*time.Second, p.passed())
		p.read(far, "0123456789")
		require.NoError(t, near.SetWriteDeadline(time.Time{}))

		p.net.Set(p.a, p.b, Path{Segment: 3})
		p.write(near, "0123456789")
		b := make([]byte, 10)
		n, err = far.Read(b)
		require.NoError(t, err)
		require.Equal(t, "0123456789", string(b[:n])) // all have arrived
		p.net.Set(p.a, p.b, Path{Segment: 3, MaxDelay: time.Second})
		p.write(near, "0123456789")
		n, err = far.Read(b)
		require.NoError(t, err)
		require.Less(t, n, 10)
		p.read(far, "0123456789"[n:])
	})
}

// The bytes arrive whole and in order, and with one seed always at the same times.
func TestSeed(t *testing.T) {
	once := func(seed uint64) (times []time.Duration) {
		inPair(t, func(t *testing.T, p *pair) {
			p.net = New(seed)
			p.a, p.b = p.net.Host("10.0.0.1"), p.net.Host("10.0.0.2", "b.example")
			p.from, p.to = p.a.Process(), p.b.Process()
			p.listen()
			near, far := p.connect()
			p.net.Set(p.a, p.b, Path{MaxDelay: time.Second, Segment: 100, Window: 300})
			sent := make([]byte, 10_000)
			_, _ = rand.NewChaCha8([32]byte{}).Read(sent)
			go func() {
				near.Write(sent)
				near.Close()
			}()
			var got []byte
			for b := make([]byte, 1000); ; {
				n, err := far.Read(b)
				got, times = append(got, b[:n]...), append(times, p.passed())
				if err != nil {
					break
				}
			}
			require.Equal(t, sent, got)
		})
		return times
	}
	require.Equal(t, once(1), once(1))
	require.NotEqual(t, once(1), once(2))
}

func TestCut(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		near, far := p.connect()
		p.net.Cut(p.a, p.b)
		p.write(near, "later")
		p.write(far, "now")
		p.read(near, "now")
		require.NoError(t, far.SetReadDeadline(time.Now().Add(time.Second)))
		p.fails(far, os.ErrDeadlineExceeded)
		require.NoError(t, near.Close()) // the other end does not know
		require.NoError(t, far.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Second, func() { p.net.Mend(p.a, p.b) })
		p.read(far, "later")
		p.ends(far)
		require.Equal(t, 2*time.Second, p.passed())

		near, far = p.connect()
		p.net.Stall(p.a, p.b, time.Second)
		p.write(near, "x")
		p.read(far, "x")
		require.Equal(t, 3*time.Second, p.passed())

		p.net.Partition([]*Host{p.a}, []*Host{p.b})
		_, err := p.dial(time.Second)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		p.net.Partition([]*Host{p.a, p.b})
		p.connect()
	})
}

// A process that is killed is heard of, and refuses connections. A machine without power is silent, and when it is
// on again, knows nothing of its connections.
func TestDeath(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		near, far := p.connect()
		waiting, err := p.dial(time.Second)
		require.NoError(t, err)
		p.write(far, "last words")
		p.to.Kill()
		p.to.Kill()
		p.fails(far, net.ErrClosed)
		p.read(near, "last words")
		p.ends(near)
		p.fails(waiting, syscall.ECONNRESET)
		_, err = p.dial(time.Second)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = p.to.Listen(t.Context(), ":7000")
		require.ErrorIs(t, err, syscall.ENETDOWN)
		_, err = p.to.Dial(t.Context(), "10.0.0.1:7000")
		require.ErrorIs(t, err, syscall.ENETDOWN)
		_, err = p.listener.Accept()
		require.ErrorIs(t, err, net.ErrClosed)

		p.to = p.b.Process()
		p.listen()
		near, far = p.connect()
		p.b.PowerOff()
		p.fails(far, net.ErrClosed)
		p.write(near, "anybody?")
		require.NoError(t, near.SetReadDeadline(time.Now().Add(time.Hour)))
		p.fails(near, os.ErrDeadlineExceeded)
		_, err = p.dial(time.Hour)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		p.b.PowerOn()
		require.NoError(t, near.SetReadDeadline(time.Time{}))
		p.fails(near, syscall.ECONNRESET)
		_, err = p.dial(time.Hour)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		p.to = p.b.Process()
		p.listen()
		p.connect()
	})
}

// A process that is paused accepts and says nothing. Its system takes what it has room for.
func TestPause(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		accepted := make(chan net.Conn)
		p.to.Pause()
		go func() {
			c, _ := p.listener.Accept()
			accepted <- c
		}()
		near, err := p.dial(time.Second)
		require.NoError(t, err)
		require.NoError(t, near.SetWriteDeadline(time.Now().Add(time.Second)))
		n, err := near.Write(make([]byte, 100_000))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Equal(t, 64<<10, n)
		select {
		case <-accepted:
			t.Fatal("a paused process has accepted")
		default:
		}
		p.to.Resume()
		far := <-accepted
		_, err = io.ReadFull(far, make([]byte, n))
		require.NoError(t, err)
		p.to.Pause()
		time.AfterFunc(time.Hour, p.to.Resume)
		p.write(far, "x") // that call waits
		require.Equal(t, time.Hour+time.Second, p.passed())
	})
}

// TLS runs over it, whatever the pieces are in which its bytes arrive.
func TestTLS(t *testing.T) {
	inPair(t, func(t *testing.T, p *pair) {
		p.net.Set(p.a, p.b, Path{MaxDelay: time.Millisecond, Segment: 7})
		p.net.Set(p.b, p.a, Path{MaxDelay: time.Millisecond, Segment: 50})
		authority := certtest.New(t)
		near, far := p.connect()
		server := tls.Server(far, &tls.Config{Certificates: []tls.Certificate{authority.Issue(&x509.Certificate{DNSNames: []string{"b.example"}})}})
		client := tls.Client(near, &tls.Config{RootCAs: authority.Pool(), ServerName: "b.example"})
		text := bytes.Repeat([]byte("text"), 1000)
		go func() {
			client.Write(text)
			client.Close()
		}()
		got, err := io.ReadAll(server)
		require.NoError(t, err)
		require.Equal(t, text, got)
		require.NoError(t, server.Close())
	})
}
