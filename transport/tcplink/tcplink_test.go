package tcplink_test

import (
	"crypto/tls"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// links makes links that listen on free ports, and on other ports after a restart.
func links(secure func(self dmutex.NodeID) *tls.Config) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			nodes := make(map[dmutex.NodeID]*tcplink.Link)
			return func(self dmutex.NodeID) transport.Link {
				l, err := tcplink.New(tcplink.Config{Self: self, Listen: "127.0.0.1:0", TLS: secure(self)})
				require.NoError(t, err)
				delete(nodes, self)
				for id, other := range nodes {
					require.NoError(t, l.SetPeer(id, other.Addr().String()))
					if err := other.SetPeer(self, l.Addr().String()); !errors.Is(err, transport.ErrClosed) {
						require.NoError(t, err)
					}
				}
				nodes[self] = l
				return l
			}
		},
		Ordered: true,
	}
}

func plain(dmutex.NodeID) *tls.Config { return nil }

func overTLS(t testing.TB) func(self dmutex.NodeID) *tls.Config {
	authority := tcplink.NewAuthority(t)
	return func(self dmutex.NodeID) *tls.Config { return authority.Config(authority.Node(self)) }
}

func TestLink(t *testing.T) {
	t.Run("plain", func(t *testing.T) { linktest.TestLink(t, links(plain)) })
	t.Run("TLS", func(t *testing.T) { linktest.TestLink(t, links(overTLS(t))) })
}

// dynamic makes links without numbers and peers.
func dynamic(secure func() *tls.Config) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			return func(dmutex.NodeID) transport.Link {
				l, err := tcplink.New(tcplink.Config{Listen: "127.0.0.1:0", TLS: secure()})
				require.NoError(t, err)
				return l
			}
		},
		Ordered: true,
	}
}

func TestDynamicLink(t *testing.T) {
	t.Run("plain", func(t *testing.T) { linktest.TestDynamicLink(t, dynamic(func() *tls.Config { return nil })) })
	authority := tcplink.NewAuthority(t)
	t.Run("TLS, by host", func(t *testing.T) {
		linktest.TestDynamicLink(t, dynamic(func() *tls.Config { return authority.Config(authority.Host("127.0.0.1")) }))
	})
	t.Run("TLS, by one name", func(t *testing.T) {
		linktest.TestDynamicLink(t, dynamic(func() *tls.Config {
			c := authority.Config(authority.Host("locks.example"))
			c.ServerName = "locks.example"
			return c
		}))
	})
}

func TestStream(t *testing.T) {
	t.Run("plain", func(t *testing.T) { linktest.TestStream(t, links(plain), nil) })
	t.Run("TLS", func(t *testing.T) { linktest.TestStream(t, links(overTLS(t)), nil) })
}
