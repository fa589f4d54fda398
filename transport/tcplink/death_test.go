package tcplink

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// watched opens a link that reports deaths.
func watched(t *testing.T, self dmutex.NodeID) (l *Link, got <-chan arrival, died chan dmutex.NodeID) {
	t.Helper()
	died = make(chan dmutex.NodeID, 100)
	l, got = openLinkFor(t, transport.Host{Died: func(peer dmutex.NodeID) { died <- peer }, Apart: time.Millisecond}, Config{}, defaultPace)
	require.NoError(t, l.Become(self))
	return l, got, died
}

// When a process ends, its peer notices, whichever of the two has dialed.
func TestDeath(t *testing.T) {
	for _, self := range []dmutex.NodeID{1, 2} {
		other := 3 - self
		l, _, died := watched(t, self)
		ends, got, _ := watched(t, other)
		require.NoError(t, ends.SetPeer(self, l.Address()))
		require.NoError(t, l.SetPeer(other, ends.Address()))
		require.NoError(t, l.Send(other, []byte("x")))
		for a := range got {
			if a.frame != "" { // else the sender was still a stranger
				break
			}
		}
		require.NoError(t, ends.Close())
		require.Equal(t, other, <-died)
	}
}

// A process that finds a record of the dead notices, too: their addresses refuse its first connections.
func TestDeathUnmet(t *testing.T) {
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, gone.Close())
	l, _, died := watched(t, 3)
	require.NoError(t, l.SetPeer(1, gone.Addr().String()))
	require.Equal(t, dmutex.NodeID(1), <-died)
}

// A peer that lost its connection does not count as dead while its address accepts
// connections, after another connection has come, or without an address.
func TestNoDeath(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())

	l, err := New(Config{Listen: "127.0.0.1:0"})
	require.NoError(t, err)
	defer l.Close()
	died := 0
	l.serve(transport.Host{Died: func(dmutex.NodeID) { died++ }, Apart: time.Millisecond})

	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	for _, host := range []string{"127.0.0.1", "localhost"} { // which may be more than one address
		newPeer(l, 2, net.JoinHostPort(host, port)).watch()
		require.Zero(t, died)
	}
	p := newPeer(l, 2, closed.Addr().String())
	p.conn = new(conn)
	p.watch()
	require.Zero(t, died)
	newPeer(l, 2, "").watch()
	require.Zero(t, died)
	p = newPeer(l, 2, closed.Addr().String())
	p.cancel()
	p.watch()
	require.Zero(t, died)
	_, port, err = net.SplitHostPort(closed.Addr().String())
	require.NoError(t, err)
	for i, host := range []string{"127.0.0.1", "localhost"} {
		newPeer(l, 2, net.JoinHostPort(host, port)).watch()
		require.Equal(t, i+1, died)
	}
}

// Only refusals count, and only two in a row.
func TestRefusals(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, err := range []error{
		nil, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.ECONNRESET,
		os.ErrDeadlineExceeded, errors.New("no such host"),
	} {
		r := refusals(0, refused)
		require.Equal(t, 1, r)
		r = refusals(r, err)
		require.Zero(t, r, "%v", err)
		require.Equal(t, 2, refusals(refusals(r, refused), refused))
	}
}
