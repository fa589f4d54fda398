package tcplink

import (
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// awaitTrouble waits until Trouble's reason contains says, or is nil if says is empty.
func awaitTrouble(t *testing.T, l *Link, to dmutex.NodeID, says string) error {
	t.Helper()
	for late := time.Now().Add(patience); ; runtime.Gosched() {
		err := l.Trouble(to)
		if err != nil && says != "" && strings.Contains(err.Error(), says) || err == nil && says == "" {
			return err
		}
		require.True(t, time.Now().Before(late), "waited in vain for %q: %v", says, err)
	}
}

// Trouble says why a peer that the link dials is not reached.
func TestTroubleOfDialing(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	listener := listenByHand(t)
	pace := defaultPace
	pace.maxRedial = pace.minRedial
	l, _ := openLinkWith(t, Config{
		Self: 4, TLS: a.Config(a.Node(4)),
		Peers: map[dmutex.NodeID]string{1: listener.Addr().String(), 2: "127.0.0.1:1", 3: "", 5: ""},
	}, pace)
	err := awaitTrouble(t, l, 2, "tcplink: cannot connect to node 2 at 127.0.0.1:1: ")
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	awaitTrouble(t, l, 3, "tcplink: cannot connect to node 3: its address is not known")
	require.ErrorIs(t, l.Trouble(9), transport.ErrUnknownNode)

	answer := func(c *tls.Config) *tls.Conn {
		nc, err := listener.Accept()
		require.NoError(t, err)
		return tls.Server(byHand(t, nc), c)
	}
	for says, c := range map[string]*tls.Config{
		"certificate signed by unknown authority":   stranger(other.Node(1)),
		"its certificate is node 2's, not node 1's": stranger(a.Node(2)),
		"remote error: tls: unknown certificate authority": with(other.Config(a.Node(1)), func(c *tls.Config) {
			c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, c.RootCAs
		}),
	} {
		c := answer(c)
		_ = c.Handshake()
		awaitTrouble(t, l, 1, "tcplink: cannot connect to node 1 at "+listener.Addr().String()+": no greeting: ")
		awaitTrouble(t, l, 1, says)
		requireEnd(t, c)
	}
	c := answer(stranger(a.Node(1)))
	takeGreeting(t, c, 1)
	require.NoError(t, writeGreeting(c, 1, 4))
	awaitTrouble(t, l, 1, "")
	require.NoError(t, listener.Close())
	require.NoError(t, c.NetConn().Close())
	awaitTrouble(t, l, 1, "connection refused")
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Trouble(1), transport.ErrClosed)
}

// Trouble says why a peer that should dial the link is not reached: why it was refused,
// or else why another connection was refused since.
func TestTroubleOfAccepting(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	l, _ := openLinkWith(t, Config{Self: 1, TLS: a.Config(a.Node(1))}, defaultPace)
	const waits = "tcplink: node 2 has not connected: the node with the higher number dials"
	require.EqualError(t, l.Trouble(2), waits)
	greet := func(c *tls.Config) net.Conn {
		nc := tls.Client(dialByHand(t, l), c)
		_, _ = nc.Write(greetingBytes(2, 1))
		return nc
	}
	requireEnd(t, greet(stranger(other.Node(2))))
	awaitTrouble(t, l, 2, waits+"; a connection from 127.0.0.1 was refused: tls: ")
	requireEnd(t, greet(stranger(a.Node(3))))
	awaitTrouble(t, l, 2, "tcplink: node 2, from 127.0.0.1, was refused: its certificate is node 3's, not node 2's")

	c := greet(stranger(a.Node(2)))
	awaitTrouble(t, l, 2, "")
	requireEnd(t, greet(stranger(a.Node(3)))) // changes nothing: node 2 is there
	require.NoError(t, l.Trouble(2))
	require.NoError(t, c.(*tls.Conn).NetConn().Close())
	err := awaitTrouble(t, l, 2, "tcplink: the connection to node 2 was lost: ")
	require.NotContains(t, err.Error(), "refused", "that was before")
}

// If a peer is cut off, Trouble says that the peer is silent.
func TestTroubleOfSilence(t *testing.T) {
	pace := defaultPace
	pace.heartbeat, pace.patience = 10*time.Millisecond, 2
	l, _ := openLinkWith(t, Config{Self: 1}, pace)
	requireEnd(t, greetByHand(t, l, 2))
	awaitTrouble(t, l, 2, "tcplink: the connection to node 2 was lost: the peer is silent")
}
