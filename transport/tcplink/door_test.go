package tcplink

import (
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// far returns the other end of c, over a network that delays each direction by oneWay.
func far(c net.Conn, oneWay time.Duration) net.Conn {
	near, end := net.Pipe()
	go carry(near, c, oneWay)
	go carry(c, near, oneWay)
	return end
}

// carry is one direction of far.
func carry(to, from net.Conn, oneWay time.Duration) {
	type part struct {
		bytes []byte
		at    time.Time
	}
	parts := make(chan part, 1000)
	go func() {
		defer close(parts)
		for {
			b := make([]byte, 4096)
			n, err := from.Read(b)
			if n > 0 {
				parts <- part{b[:n], time.Now().Add(oneWay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range parts {
		time.Sleep(time.Until(p.at))
		_, _ = to.Write(p.bytes) // if it is closed, reading tells
	}
	time.Sleep(oneWay)
	to.Close()
}

// A member reconnects soon even if a crowd of strangers arrives faster than handshakes complete: at
// once from another address, and within a few attempts from the address of the crowd.
func TestCrowdAtTheDoor(t *testing.T) {
	const (
		oneWay  = 30 * time.Millisecond
		between = time.Second / 2000
	)
	crowdFrom := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}
	for _, test := range []struct {
		name   string
		from   net.Addr
		secure bool
		places int // 64 are fewer than arrive during a handshake
		within time.Duration
	}{
		{"plain, from elsewhere", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}, false, 64, 3 * oneWay},
		{"TLS, from elsewhere", &net.TCPAddr{IP: net.IPv4(192, 0, 2, 2)}, true, 64, 5 * oneWay},
		{"plain, from the same address", crowdFrom, false, defaultPace.maxGreeters, 7 * time.Second},
		{"TLS, from the same address", crowdFrom, true, defaultPace.maxGreeters, 7 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := NewAuthority(t)
				var config Config
				if test.secure {
					config.TLS = a.Config(a.Node(1))
				}
				pace := defaultPace
				pace.maxGreeters = test.places
				pace.pick = rand.New(rand.NewPCG(1, 2)).IntN // under the door's mutex
				l, got := closedLink(t, config, pace)

				stop, gone := make(chan struct{}), make(chan struct{})
				go func() {
					defer close(gone)
					for {
						select {
						case <-stop:
							return
						case <-time.After(between):
							c := knock(l, crowdFrom)
							go func() { _, _ = io.Copy(io.Discard, c) }()
						}
					}
				}()
				time.Sleep(time.Second)

				began, delay := time.Now(), pace.minRedial
				var c net.Conn
				for {
					c = far(knock(l, test.from), oneWay)
					if test.secure {
						c = secured{Conn: tls.Client(c, stranger(a.Node(2)))}
					}
					err := writeGreeting(c, 2, 1)
					if err == nil {
						_, err = readGreeting(c, 2)
					}
					if err == nil {
						break
					}
					c.Close()
					time.Sleep(delay) // as peer.dial does
					delay = min(2*delay, pace.maxRedial)
					require.Less(t, time.Since(began), time.Minute)
				}
				t.Logf("after %v", time.Since(began))
				require.LessOrEqual(t, time.Since(began), test.within)
				sendByHand(t, c, "through the crowd")
				require.Equal(t, arrival{2, "through the crowd"}, <-got)

				for range 2 * pace.maxGreeters { // a connection that is through does not give way
					time.Sleep(between)
				}
				sendByHand(t, c, "still here")
				require.Equal(t, arrival{2, "still here"}, <-got)
				close(stop)
				<-gone
				synctest.Wait()
				l.door.mu.Lock()
				require.LessOrEqual(t, len(l.door.inside), pace.maxGreeters)
				l.door.mu.Unlock()
				require.NoError(t, l.Close())
				c.Close()
				time.Sleep(time.Second) // what was on its way has arrived
			})
		})
	}
}

func TestSource(t *testing.T) {
	for addr, want := range map[string]string{
		"192.0.2.1:7":            "192.0.2.1/32",
		"[::ffff:192.0.2.1]:7":   "192.0.2.1/32",
		"[2001:db8:1:2:3::4]:7":  "2001:db8:1:2::/64",
		"[fe80::1:2:3:4%eth0]:7": "fe80::/64",
	} {
		require.Equal(t, want, source(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(addr))).String())
	}
	near, _ := net.Pipe()
	require.Equal(t, netip.Prefix{}, source(near.RemoteAddr()))
}

// A listener forgets an address when its connections end.
func TestDoorForgets(t *testing.T) {
	d := door{places: 3, pick: func(n int) int { return n - 1 }}
	at := func(host byte) net.Conn {
		near, _ := net.Pipe()
		return fromAddr{near, &net.TCPAddr{IP: net.IPv4(192, 0, 2, host)}}
	}
	one, two, three, four, five := at(1), at(2), at(2), at(3), at(4)
	require.Nil(t, d.enter(one))
	require.Nil(t, d.enter(two))
	require.Nil(t, d.enter(three))
	require.Equal(t, three, d.enter(four), "the source with most connections gives way")
	require.False(t, d.leave(three))
	require.Contains(t, []net.Conn{one, two, four}, d.enter(five), "each source has one, so any may give way")
	for _, nc := range []net.Conn{one, two, four, five} {
		d.leave(nc)
	}
	require.Empty(t, d.inside)
}
