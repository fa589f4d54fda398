package tcplink

import (
	"bytes"
	"crypto/tls"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A link that New has not made has no peers.
func TestUnmadeSetPeer(t *testing.T) {
	require.ErrorIs(t, new(Link).SetPeer(1, ""), dmutex.ErrMisuse)
}

func TestDynamicConfig(t *testing.T) {
	a := NewAuthority(t)
	byHost := func(host string) *tls.Config { return a.Config(a.Host(host)) }
	byName := func(name string) *tls.Config {
		return with(byHost(name), func(c *tls.Config) { c.ServerName = "locks.example" })
	}
	for name, test := range map[string]struct {
		config  Config
		address string // a port 0 stands for the real one
		says    string // part of the refusal; empty if accepted
	}{
		"loopback":            {Config{Listen: "127.0.0.1:0"}, "127.0.0.1:0", ""},
		"IPv6":                {Config{Listen: "[::1]:0"}, "[::1]:0", ""},
		"a name":              {Config{Listen: "localhost:0"}, "localhost:0", ""},
		"advertised":          {Config{Listen: ":0", Advertise: "10.1.2.3:7000", AllowPlain: true}, "10.1.2.3:7000", ""},
		"an advertised name":  {Config{Listen: "127.0.0.1:0", Advertise: "pod.example:7000", AllowPlain: true}, "pod.example:7000", ""},
		"no listen":           {Config{}, "", "Config.Listen is missing"},
		"no port":             {Config{Listen: "127.0.0.1"}, "", "give host:port"},
		"all interfaces":      {Config{Listen: ":0", AllowPlain: true}, "", "set Config.Advertise to the host:port that the others dial, such as the pod's IP and the port"},
		"0.0.0.0":             {Config{Listen: "0.0.0.0:0", AllowPlain: true}, "", "set Config.Advertise"},
		"::":                  {Config{Listen: "[::]:0", AllowPlain: true}, "", "set Config.Advertise"},
		"0.0.0.0 in IPv6":     {Config{Listen: "[::ffff:0.0.0.0]:0", AllowPlain: true}, "", "set Config.Advertise"},
		"advertises all":      {Config{Listen: ":0", Advertise: ":7000", AllowPlain: true}, "", "Config.Advertise is \":7000\", which names no host"},
		"advertises no port":  {Config{Listen: ":0", Advertise: "10.1.2.3", AllowPlain: true}, "", "Config.Advertise is \"10.1.2.3\": give host:port"},
		"advertises port 0":   {Config{Listen: ":0", Advertise: "10.1.2.3:0", AllowPlain: true}, "", "Config.Advertise"},
		"plain beyond":        {Config{Listen: "127.0.0.1:0", Advertise: "10.1.2.3:7000"}, "", "AllowPlain"},
		"with peers":          {Config{Listen: "127.0.0.1:0", Peers: map[dmutex.NodeID]string{2: ""}}, "", "Config.Peers with Config.Self 0"},
		"with NodeOf":         {Config{Listen: "127.0.0.1:0", TLS: byHost("127.0.0.1"), NodeOf: NodeOf}, "", "Config.NodeOf with Config.Self 0"},
		"fixed, advertised":   {Config{Self: 1, Listen: "127.0.0.1:0", Advertise: "127.0.0.1:7000"}, "", "Config.Advertise is for a link with Config.Self 0"},
		"TLS":                 {Config{Listen: "127.0.0.1:0", TLS: byHost("127.0.0.1")}, "127.0.0.1:0", ""},
		"TLS, advertised":     {Config{Listen: ":0", Advertise: "pod.example:7000", TLS: byHost("pod.example")}, "pod.example:7000", ""},
		"TLS, another host":   {Config{Listen: ":0", Advertise: "10.1.2.3:7000", TLS: byHost("10.1.2.4")}, "", "refuse a node at 10.1.2.3:7000: x509: certificate is valid for 10.1.2.4, not 10.1.2.3"},
		"TLS, no host at all": {Config{Listen: "127.0.0.1:0", TLS: a.Config(a.Node(1))}, "", "the peers would refuse a node at 127.0.0.1:0"},
		"TLS, one name":       {Config{Listen: "127.0.0.1:0", TLS: byName("locks.example")}, "127.0.0.1:0", ""},
		"TLS, another name":   {Config{Listen: "127.0.0.1:0", TLS: byName("127.0.0.1")}, "", "locks.example"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(test.config)
			if test.says != "" {
				require.ErrorIs(t, err, dmutex.ErrMisuse)
				require.ErrorContains(t, err, test.says)
				return
			}
			require.NoError(t, err)
			if host, found := strings.CutSuffix(test.address, ":0"); found {
				_, port, err := net.SplitHostPort(l.Addr().String())
				require.NoError(t, err)
				test.address = host + ":" + port
			}
			require.Equal(t, test.address, l.Address())
			require.NoError(t, l.Close())
		})
	}
}

func TestDynamicRefuses(t *testing.T) {
	fixed, _ := openLink(t, 1, defaultPace)
	require.ErrorIs(t, fixed.Become(2), dmutex.ErrMisuse)
	l, _ := openDynamic(t, Config{})
	require.ErrorContains(t, l.SetPeer(2, "127.0.0.1:7000"), "SetPeer before Become")
	require.ErrorContains(t, l.Trouble(2), "this node has no number yet")
	require.NoError(t, l.Become(1))
	for _, addr := range []string{"", ":7000", "0.0.0.0:7000", "[::]:7000", "127.0.0.1", "127.0.0.1:0", "10.1.2.3:7000"} {
		require.ErrorIs(t, l.SetPeer(2, addr), dmutex.ErrMisuse, addr)
	}
	require.ErrorIs(t, l.Trouble(2), transport.ErrUnknownNode)
}

// openDynamic opens a link without a number.
func openDynamic(t *testing.T, config Config) (*Link, <-chan arrival) {
	t.Helper()
	return openLinkWith(t, config, defaultPace)
}

// A link connects only to its peers, and only under its current number.
func TestNumbers(t *testing.T) {
	logger, told := lines()
	l, got := openDynamic(t, Config{Logger: logger})
	refused := func(from, to dmutex.NodeID) {
		t.Helper()
		c := dialByHand(t, l)
		require.NoError(t, writeGreeting(c, from, to))
		require.Empty(t, requireEnd(t, c))
	}
	says := func(parts ...string) {
		t.Helper()
		line := <-told
		for _, part := range parts {
			require.Contains(t, line, part)
		}
	}
	const anywhere = "127.0.0.1:1"

	refused(7, 0)
	says("level=DEBUG", "this node has no number yet", "node=0")
	require.NoError(t, l.Become(5))
	refused(7, 4) // a number that another process had
	says("level=DEBUG", "the greeting is for node 4", "node=5")
	require.Empty(t, got)
	refused(7, 5)
	says("level=DEBUG", "node 7 is not a peer", "node=5")
	require.Equal(t, arrival{7, ""}, next(t, got))
	refused(0, 5)
	says("level=WARN", "node 0 is not in the address book")
	refused(5, 5)
	says("level=WARN", "node 5 is not in the address book")
	require.Empty(t, got)

	require.NoError(t, l.SetPeer(7, anywhere))
	c := greetByHand(t, l, 7)
	says("level=INFO", "connected", "peer=7")
	sendByHand(t, c, "hello")
	require.Equal(t, arrival{7, "hello"}, next(t, got))
	require.NoError(t, l.Become(6))
	requireEnd(t, c)
	refused(7, 5)
	says("the greeting is for node 5", "node=6")
	require.Empty(t, got)

	listener := listenByHand(t)
	require.NoError(t, l.SetPeer(2, listener.Addr().String()))
	c = acceptByHand(t, listener, 2, 6)
	says("connected", "node=6", "peer=2")
	require.NoError(t, l.Send(2, []byte("hello")))
	require.Equal(t, "hello", readByHand(t, c))
	l.RemovePeer(2)
	requireEnd(t, c)
	require.ErrorIs(t, l.Send(2, []byte("hello")), transport.ErrUnknownNode)
	require.NoError(t, l.SetPeer(2, listener.Addr().String()))
	acceptByHand(t, listener, 2, 6)
	require.NoError(t, l.Become(dmutex.None))
	refused(7, 6)
	require.Empty(t, got)
}

// When the number changes or the peer is removed, the link delivers no more frames of the
// same read.
func TestReadEndsWithPeer(t *testing.T) {
	for name, end := range map[string]func(l *Link) error{
		"another number": func(l *Link) error { return l.Become(2) },
		"no peer":        func(l *Link) error { l.RemovePeer(7); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := New(Config{Listen: "127.0.0.1:0"})
			require.NoError(t, err)
			bursts := 0
			require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {
				bursts++
				if err := end(l); err != nil {
					t.Error(err)
				}
			}}))
			require.NoError(t, l.Become(1))
			require.NoError(t, l.SetPeer(7, "127.0.0.1:1"))
			c := greetByHand(t, l, 7)
			_, err = c.Write(bytes.Repeat(appendFrame(nil, []byte("frame")), 2*maxBurst))
			require.NoError(t, err)
			requireEnd(t, c)
			require.NoError(t, l.Close())
			require.Equal(t, 1, bursts)
		})
	}
}

// A connection that is ready only after its peer was removed is not used.
func TestServeAfterRemove(t *testing.T) {
	l, _ := openDynamic(t, Config{})
	p := newPeer(l, 7, "127.0.0.1:1")
	p.remove()
	require.Nil(t, p.take(nil, 0, nil))
}

// A newcomer that is refused, because others do not know it yet, tries again soon. That is
// no reason for a warning.
func TestNewcomer(t *testing.T) {
	logger, told := lines()
	old, got := openDynamic(t, Config{})
	young, _ := openDynamic(t, Config{Logger: logger})
	require.NoError(t, old.Become(1))
	require.NoError(t, young.Become(2))
	require.NoError(t, young.SetPeer(1, old.Address()))
	require.NoError(t, young.Send(1, []byte("hello")))
	require.Equal(t, arrival{2, ""}, next(t, got))
	require.Equal(t, arrival{2, ""}, next(t, got)) // again
	require.ErrorContains(t, awaitTrouble(t, young, 1, "closed the connection"), "it may not know this node yet")
	require.NoError(t, old.SetPeer(2, young.Address()))
	for a := next(t, got); a.frame != "hello"; a = next(t, got) {
		require.Equal(t, arrival{2, ""}, a)
	}
	require.Contains(t, <-told, "level=DEBUG msg=\"tcplink: cannot connect")
	require.Contains(t, <-told, "level=INFO msg=\"tcplink: connected")
}

// Removed peers and former numbers leave no goroutine, connection or memory.
func TestNothingIsLeftOfPeers(t *testing.T) {
	l, _ := openDynamic(t, Config{})
	other, _ := openDynamic(t, Config{})
	require.NoError(t, other.Become(1))
	last := dmutex.NodeID(1)
	become := func() {
		last += 1000
		require.NoError(t, l.Become(last))
	}
	frame := make([]byte, 1000)
	use := func(id dmutex.NodeID, addr string) {
		require.NoError(t, l.SetPeer(id, addr))
		require.NoError(t, l.Send(id, frame))
	}
	round := func() {
		become()
		for i := range dmutex.NodeID(100) {
			use(last-1-i, other.Address()) // is dialed, and refuses
			use(last+1+i, other.Address()) // is waited for
			if i%2 == 0 {
				l.RemovePeer(last - 1 - i)
				l.RemovePeer(last + 1 + i)
			} // else the next number forgets it
		}
	}
	// idle waits until goroutines have ended.
	idle := func(most int) {
		for late := time.Now().Add(patience); runtime.NumGoroutine() > most; runtime.Gosched() {
			require.True(t, time.Now().Before(late), "%d goroutines, not %d", runtime.NumGoroutine(), most)
		}
	}
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := runtime.NumGoroutine()
	round()
	become()
	idle(before)
	used := heap()
	for range 50 {
		round()
	}
	become()
	idle(before)
	require.Less(t, heap()-used, int64(2<<20)) // 10,000 peers, a frame of 1000 bytes each
	l.mu.Lock()
	defer l.mu.Unlock()
	require.Empty(t, l.peers)
}

// Both sides check a certificate against the host of the peer's address. With a ServerName
// they check it against that name instead.
func TestTLSOfHosts(t *testing.T) {
	a, foreign := NewAuthority(t), NewAuthority(t)
	for _, test := range []struct {
		name     string
		group    string // Config.TLS.ServerName
		own      string // the host of the link's certificate
		shown    tls.Certificate
		accepted bool
	}{
		{"the host", "", "127.0.0.1", a.Host("127.0.0.1"), true},
		{"another host", "", "127.0.0.1", a.Host("127.0.0.2"), false},
		{"a name", "", "127.0.0.1", a.Host("localhost"), false},
		{"a number", "", "127.0.0.1", a.Node(1), false},
		{"another authority", "", "127.0.0.1", foreign.Host("127.0.0.1"), false},
		{"the group", group, group, a.Host(group), true},
		{"another group", group, group, a.Host("others.example"), false},
		{"the host, but no group", group, group, a.Host("127.0.0.1"), false},
		{"the group, of another authority", group, group, foreign.Host(group), false},
	} {
		config := with(a.Config(a.Host(test.own)), func(c *tls.Config) { c.ServerName = test.group })
		t.Run(test.name+", accepting", func(t *testing.T) {
			l, got := openDynamic(t, Config{TLS: config})
			require.NoError(t, l.Become(2))
			require.NoError(t, l.SetPeer(3, "127.0.0.1:1"))
			c := tls.Client(dialByHand(t, l), stranger(test.shown))
			_, _ = c.Write(append(greetingBytes(3, 2), appendFrame(nil, []byte("hello"))...))
			if !test.accepted {
				require.Empty(t, requireEnd(t, c))
				require.Empty(t, got)
				return
			}
			require.Equal(t, arrival{3, "hello"}, next(t, got))
		})
		t.Run(test.name+", dialing", func(t *testing.T) {
			listener := listenByHand(t)
			l, got := openDynamic(t, Config{TLS: config})
			require.NoError(t, l.Become(2))
			require.NoError(t, l.SetPeer(1, listener.Addr().String()))
			c := tls.Server(meetByHand(t, listener), stranger(test.shown))
			if !test.accepted {
				_, err := readGreeting(c, 1)
				require.Error(t, err, "it greets")
				return
			}
			takeGreeting(t, c, 1)
			_, err := c.Write(append(greetingBytes(1, 2), appendFrame(nil, []byte("hello"))...))
			require.NoError(t, err)
			require.Equal(t, arrival{1, "hello"}, next(t, got))
		})
	}
}

// A stranger without TLS, without a certificate or with one of another authority gets no
// answer, and cannot make a node read the record.
func TestTLSStranger(t *testing.T) {
	a, foreign := NewAuthority(t), NewAuthority(t)
	l, got := openDynamic(t, Config{TLS: a.Config(a.Host("127.0.0.1"))})
	require.NoError(t, l.Become(2))
	knock := func(cert tls.Certificate) {
		c := tls.Client(dialByHand(t, l), stranger(cert))
		_, _ = c.Write(greetingBytes(3, 2))
		require.Empty(t, requireEnd(t, c))
	}
	for range 10 {
		knock(foreign.Host("127.0.0.1"))
		c := tls.Client(dialByHand(t, l), stranger())
		_, _ = c.Write(greetingBytes(3, 2))
		require.Empty(t, requireEnd(t, c))
		plain := dialByHand(t, l)
		_, _ = plain.Write(greetingBytes(3, 2))
		require.NotContains(t, string(requireEnd(t, plain)), string(greetingBytes(2, 3)))
	}
	require.Empty(t, got)
	knock(a.Host("10.1.2.3")) // its address is not known yet
	require.Equal(t, arrival{3, ""}, next(t, got))
}

// SetTLS refuses a certificate that is not for this node's host.
func TestSetTLSOfHosts(t *testing.T) {
	a := NewAuthority(t)
	l, _ := openDynamic(t, Config{TLS: a.Config(a.Host("127.0.0.1"))})
	require.NoError(t, l.SetTLS(a.Config(a.Host("127.0.0.1"))))
	require.ErrorIs(t, l.SetTLS(a.Config(a.Host("127.0.0.2"))), dmutex.ErrMisuse)
}

// A connection that began under one Config.TLS is checked by that one to its end: the certificate of
// another host is refused also if the next Config.TLS would check a ServerName in its place.
func TestSetTLSDuringGreeting(t *testing.T) {
	a := NewAuthority(t)
	l, _ := openDynamic(t, Config{TLS: a.Config(a.Host("127.0.0.1"))})
	require.NoError(t, l.Become(1))
	require.NoError(t, l.SetPeer(2, "127.0.0.1:7000"))
	c := tls.Client(dialByHand(t, l), stranger(a.Host("others.example")))
	require.NoError(t, c.Handshake())
	require.NoError(t, l.SetTLS(with(a.Config(a.Host(group)), func(c *tls.Config) { c.ServerName = group })))
	require.NoError(t, writeGreeting(c, 2, 1))
	require.Empty(t, requireEnd(t, c), "it answers")
}
