package tcplink_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/outagetest"
	"github.com/dmutex/dmutex/internal/kit/streamnet"
	"github.com/dmutex/dmutex/internal/kit/wrongclock"
	"github.com/dmutex/dmutex/internal/outside"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// simulate makes links in a bubble, each on a host of its own.
func simulate(secure func(t *testing.T) func(self dmutex.NodeID, host string) *tls.Config, numbered bool, path streamnet.Path) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			network, certs := streamnet.New(1), secure(t)
			var hosts []*streamnet.Host
			nodes := make(map[dmutex.NodeID]*tcplink.Link)
			return func(self dmutex.NodeID) transport.Link {
				ip := fmt.Sprintf("10.0.0.%d", len(hosts)+1)
				host := network.Host(ip)
				for _, other := range hosts {
					network.Set(host, other, path)
					network.Set(other, host, path)
				}
				hosts = append(hosts, host)
				c := tcplink.Config{Listen: ip + ":7000", TLS: certs(self, ip)}
				if c.AllowPlain = c.TLS == nil; numbered {
					c.Self = self
				}
				l := newSimulated(t, host.Process(), c)
				if !numbered {
					return l
				}
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
		Ordered: true, Synctest: true,
	}
}

func newSimulated(t *testing.T, on outside.Network, c tcplink.Config) (l *tcplink.Link) {
	(&outside.Process{Network: on}).Open(func() {
		var err error
		l, err = tcplink.New(c)
		require.NoError(t, err)
	})
	return l
}

// The links keep their contract over a network in memory, also where it is slow and cuts bytes in pieces.
func TestSimulated(t *testing.T) {
	plain := func(*testing.T) func(dmutex.NodeID, string) *tls.Config {
		return func(dmutex.NodeID, string) *tls.Config { return nil }
	}
	secure := func(t *testing.T) func(dmutex.NodeID, string) *tls.Config {
		authority := tcplink.NewAuthority(t)
		return func(self dmutex.NodeID, host string) *tls.Config {
			if self == dmutex.None {
				return authority.Config(authority.Host(host))
			}
			return authority.Config(authority.Node(self))
		}
	}
	fast := streamnet.Path{}
	slow := streamnet.Path{MinDelay: time.Millisecond, MaxDelay: 20 * time.Millisecond, Segment: 5000, Rate: 100 << 20}
	t.Run("plain", func(t *testing.T) { linktest.TestLink(t, simulate(plain, true, fast)) })
	t.Run("slow", func(t *testing.T) { linktest.TestStream(t, simulate(plain, true, slow), nil) })
	t.Run("TLS", func(t *testing.T) { linktest.TestStream(t, simulate(secure, true, slow), nil) })
	t.Run("dynamic", func(t *testing.T) { linktest.TestDynamicLink(t, simulate(plain, false, fast)) })
}

// A member whose clock is fast loses a lock earlier, by as much. One whose machine sleeps while its wall clock goes on, or
// whose wall clock is set forward, loses it at once, and one whose wall clock is set back notices nothing.
func TestSimulatedClock(t *testing.T) {
	lasts := func(ppm int64, disturb func(*wrongclock.Clock)) (long time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			c, record := wrongclock.New(1, ppm), outagetest.New(t, new(store.Memory), outagetest.Faults{})
			var n *node.Node
			(&outside.Process{Network: streamnet.New(1).Host("10.0.0.1").Process(), Clock: c}).Open(func() {
				l, err := tcplink.New(tcplink.Config{Listen: "10.0.0.1:7000", AllowPlain: true})
				require.NoError(t, err)
				n, err = node.Open(t.Context(), record, l, node.Config{Name: "n", Lease: 10 * time.Second})
				require.NoError(t, err)
			})
			h, err := n.Mutex("x").Acquire(t.Context())
			require.NoError(t, err)
			record.Outage(true)
			begin := time.Now()
			disturb(c)
			<-h.Context().Done()
			long = time.Since(begin)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_ = n.Close(ended)
		})
		return long
	}
	right := lasts(0, func(*wrongclock.Clock) {})
	require.Greater(t, right, 8*time.Second)
	for _, ppm := range []int64{10_000, -10_000} {
		require.InDelta(t, right*1_000_000/time.Duration(1_000_000+ppm), lasts(ppm, func(*wrongclock.Clock) {}), float64(time.Millisecond))
	}
	require.Less(t, lasts(0, func(c *wrongclock.Clock) { c.Step(20 * time.Second) }), 2*time.Second)
	require.Less(t, lasts(0, func(c *wrongclock.Clock) { c.Sleep(20 * time.Second) }), 21*time.Second)
	require.Equal(t, right, lasts(0, func(c *wrongclock.Clock) { c.Step(-time.Hour) }))
}
