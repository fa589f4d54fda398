package tcplink

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

func TestNodeOf(t *testing.T) {
	for _, test := range []struct {
		names []string
		node  dmutex.NodeID
		says  string // part of the refusal; empty if accepted
	}{
		{[]string{"dmutex:node:7"}, 7, ""},
		{[]string{"spiffe://example.org/locks", "dmutex:node:18446744073709551615"}, 1<<64 - 1, ""},
		{nil, 0, "names no node"},
		{[]string{"spiffe://example.org/dmutex:node:7"}, 0, "names no node"},
		{[]string{"dmutex:node:7", "dmutex:node:7"}, 0, "names several"},
		{[]string{"dmutex:node:7", "dmutex:node:8"}, 0, "names several"},
		{[]string{"dmutex:node:7", "dmutex:"}, 0, "not of the form"},
		{[]string{"dmutex:node:0"}, 0, "not of the form"},
		{[]string{"dmutex:node:07"}, 0, "not of the form"},
		{[]string{"dmutex:node:+7"}, 0, "not of the form"},
		{[]string{"dmutex:node:7?x"}, 0, "not of the form"},
		{[]string{"dmutex:node:7#x"}, 0, "not of the form"},
		{[]string{"dmutex://node:7"}, 0, "not of the form"},
		{[]string{"dmutex:7"}, 0, "not of the form"},
		{[]string{"dmutex:node:18446744073709551616"}, 0, "not of the form"},
	} {
		node, err := NodeOf(leaf(test.names...))
		require.Equal(t, test.node, node, test.names)
		if test.says == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, test.says, test.names)
	}
	cert := leaf()
	cert.URIs = []*url.URL{{Scheme: "dmutex", Opaque: "node:7"}}
	node, err := NodeOf(cert)
	require.NoError(t, err)
	require.Equal(t, dmutex.NodeID(7), node)
}

// only returns a leaf for node 1 that is fit for one use.
func only(usage x509.ExtKeyUsage) *x509.Certificate {
	l := leaf("dmutex:node:1")
	l.ExtKeyUsage = []x509.ExtKeyUsage{usage}
	return l
}

func expired(names ...string) *x509.Certificate {
	l := leaf(names...)
	l.NotBefore, l.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	return l
}

func named(host string, names ...string) *x509.Certificate {
	l := leaf(names...)
	l.DNSNames = []string{host}
	return l
}

func TestTLSConfig(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	for name, test := range map[string]struct {
		change func(*Config)
		says   string // part of the refusal; empty if accepted
	}{
		"good":      {func(*Config) {}, ""},
		"beyond":    {func(c *Config) { c.Peers = map[dmutex.NodeID]string{2: "10.1.2.3:7000", 3: "node3.example:1"} }, ""},
		"listen":    {func(c *Config) { c.Listen = "0.0.0.0:0" }, ""},
		"plain too": {func(c *Config) { c.AllowPlain = true }, "contradict"},
		"no roots":  {func(c *Config) { c.TLS.RootCAs = nil }, "RootCAs is missing"},
		"no check":  {func(c *Config) { c.TLS.InsecureSkipVerify = true }, "believe everyone"},
		"TLS 1.2":   {func(c *Config) { c.TLS.MaxVersion = tls.VersionTLS12 }, "below TLS 1.3"},
		"another hook": {func(c *Config) {
			c.TLS.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return nil }
		}, "use VerifyConnection"},
		"way around": {func(c *Config) {
			c.TLS.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return nil, nil }
		}, "replace the checks"},
		"no certificate":     {func(c *Config) { c.TLS.Certificates = nil }, "has no certificate"},
		"half a certificate": {func(c *Config) { c.TLS.Certificates, c.TLS.GetCertificate = nil, getCertificate }, "has no certificate"},
		"both halves": {func(c *Config) {
			c.TLS.Certificates, c.TLS.GetCertificate, c.TLS.GetClientCertificate = nil, getCertificate, getClientCertificate
		}, ""},
		"empty certificate": {func(c *Config) { c.TLS.Certificates = []tls.Certificate{{Certificate: [][]byte{{1}}}} }, "peers would refuse"},
		"another node's":    {func(c *Config) { c.TLS.Certificates = []tls.Certificate{a.Node(2)} }, "is node 2's"},
		"nobody's":          {func(c *Config) { c.TLS.Certificates = []tls.Certificate{a.Issue(leaf())} }, "names no node"},
		"another authority": {func(c *Config) { c.TLS.Certificates = []tls.Certificate{other.Node(1)} }, "unknown authority"},
		"expired":           {func(c *Config) { c.TLS.Certificates = []tls.Certificate{a.Issue(expired("dmutex:node:1"))} }, "expired"},
		"expired, but not by its clock": {func(c *Config) {
			c.TLS.Certificates = []tls.Certificate{a.Issue(expired("dmutex:node:1"))}
			c.TLS.Time = func() time.Time { return time.Now().Add(-90 * time.Minute) }
		}, ""},
		"only for servers": {func(c *Config) { c.TLS.Certificates = []tls.Certificate{a.Issue(only(x509.ExtKeyUsageServerAuth))} }, "key usage"},
		"only for clients": {func(c *Config) { c.TLS.Certificates = []tls.Certificate{a.Issue(only(x509.ExtKeyUsageClientAuth))} }, "key usage"},
		"another group":    {func(c *Config) { c.TLS.ServerName = "locks.example" }, "peers would refuse"},
		"the group": {func(c *Config) {
			c.TLS.ServerName, c.TLS.Certificates = "locks.example", []tls.Certificate{a.Issue(named("locks.example", "dmutex:node:1"))}
		}, ""},
		"names for nothing":  {func(c *Config) { c.TLS, c.NodeOf = nil, NodeOf }, "without Config.TLS"},
		"names of one's own": {func(c *Config) { c.NodeOf = func(*x509.Certificate) (dmutex.NodeID, error) { return 2, nil } }, "is node 2's"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Self: 1, Listen: "127.0.0.1:0", TLS: a.Config(a.Node(1))}
			test.change(&c)
			before := c.TLS.Clone()
			l, err := New(c)
			if c.TLS != nil {
				require.Equal(t, before.MinVersion, c.TLS.MinVersion, "the application's own config is left alone")
				require.Equal(t, before.ClientCAs, c.TLS.ClientCAs)
			}
			if test.says == "" {
				require.NoError(t, err)
				require.NoError(t, l.Close())
				return
			}
			require.ErrorIs(t, err, dmutex.ErrMisuse)
			require.ErrorContains(t, err, test.says)
		})
	}
}

func getCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, nil }

func getClientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, nil }

// stranger is the config of a process that shows certs and checks nothing.
func stranger(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: certs, InsecureSkipVerify: true, ClientAuth: tls.RequestClientCert}
}

func with(c *tls.Config, change func(*tls.Config)) *tls.Config {
	change(c)
	return c
}

const group = "locks.example"

// The accepting side answers only a node whose valid certificate names it.
func TestTLSAccept(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	l, got := openLinkWith(t, Config{
		Self: 2,
		TLS:  with(a.Config(a.Issue(named(group, "dmutex:node:2"))), func(c *tls.Config) { c.ServerName = group }),
	}, defaultPace)
	hello := append(greetingBytes(3, 2), appendFrame(nil, []byte("forged"))...)
	for name, c := range map[string]*tls.Config{
		"another node's certificate": stranger(a.Issue(named(group, "dmutex:node:4"))),
		"another authority":          stranger(other.Issue(named(group, "dmutex:node:3"))),
		"another group":              stranger(a.Issue(named("others.example", "dmutex:node:3"))),
		"no group":                   stranger(a.Node(3)),
		"no node":                    stranger(a.Issue(named(group))),
		"expired":                    stranger(a.Issue(expired("dmutex:node:3"))),
		"no certificate":             stranger(),
		"TLS 1.2":                    with(stranger(a.Issue(named(group, "dmutex:node:3"))), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
		"only for servers": stranger(a.Issue(but(named(group, "dmutex:node:3"), func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}))),
	} {
		t.Run(name, func(t *testing.T) {
			c := tls.Client(dialByHand(t, l), c)
			_, _ = c.Write(hello) // it may be refused before
			require.Empty(t, requireEnd(t, c), "it answers")
		})
	}
	t.Run("plain", func(t *testing.T) {
		c := dialByHand(t, l)
		_, err := c.Write(hello)
		require.NoError(t, err)
		requireEnd(t, c) // after an alert of TLS
	})
	c := tls.Client(dialByHand(t, l), stranger(a.Issue(named(group, "dmutex:node:3"))))
	_, err := c.Write(append(greetingBytes(3, 2), appendFrame(nil, []byte("genuine"))...))
	require.NoError(t, err)
	require.Equal(t, arrival{3, "genuine"}, next(t, got))
	require.Empty(t, got)
}

// but is like with, for the template of a certificate.
func but(c *x509.Certificate, change func(*x509.Certificate)) *x509.Certificate {
	change(c)
	return c
}

// The dialing side refuses a node other than the one that it means to reach, and does
// not even greet it.
func TestTLSDial(t *testing.T) {
	a, other := NewAuthority(t), NewAuthority(t)
	listener := listenByHand(t)
	pace := defaultPace
	pace.maxRedial = pace.minRedial
	l, got := openLinkWith(t, Config{
		Self: 3,
		TLS: with(a.Config(a.Issue(named(group, "dmutex:node:3"))), func(c *tls.Config) {
			c.ServerName, c.VerifyConnection = group, verified
		}),
		Peers: map[dmutex.NodeID]string{1: listener.Addr().String()},
	}, pace)
	for name, c := range map[string]*tls.Config{
		"another node's certificate": stranger(a.Issue(named(group, "dmutex:node:2"))),
		"our own certificate":        stranger(a.Issue(named(group, "dmutex:node:3"))),
		"another authority":          stranger(other.Issue(named(group, "dmutex:node:1"))),
		"another group":              stranger(a.Issue(named("others.example", "dmutex:node:1"))),
		"no node":                    stranger(a.Issue(named(group))),
		"expired":                    stranger(a.Issue(expired("dmutex:node:1"))),
		"TLS 1.2":                    with(stranger(a.Issue(named(group, "dmutex:node:1"))), func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }),
		"only for clients": stranger(a.Issue(but(named(group, "dmutex:node:1"), func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}))),
	} {
		t.Run(name, func(t *testing.T) {
			c := tls.Server(meetByHand(t, listener), c)
			_, _ = c.Write(append(greetingBytes(1, 3), appendFrame(nil, []byte("forged"))...))
			require.Empty(t, requireEnd(t, c), "it greets")
		})
	}
	t.Run("plain", func(t *testing.T) {
		c := meetByHand(t, listener)
		_, err := c.Write(append(greetingBytes(1, 3), appendFrame(nil, []byte("forged"))...))
		require.NoError(t, err)
		require.NotContains(t, string(requireEnd(t, c)), greetingMark, "it greets")
	})
	c := tls.Server(meetByHand(t, listener), stranger(a.Issue(named(group, "dmutex:node:1"))))
	require.Equal(t, l.self, takeGreeting(t, c, 1))
	require.Equal(t, "CN=authority", c.ConnectionState().PeerCertificates[0].Issuer.String(), "it shows its certificate")
	_, err := c.Write(append(greetingBytes(1, 3), appendFrame(nil, []byte("genuine"))...))
	require.NoError(t, err)
	require.Equal(t, arrival{1, "genuine"}, next(t, got))
	require.Empty(t, got)
}

// An impostor that shows another node's certificate, and no greeting of its own, is
// not greeted either.
func TestTLSDialSilentImpostor(t *testing.T) {
	a := NewAuthority(t)
	listener := listenByHand(t)
	openLinkWith(t, Config{
		Self: 3, TLS: a.Config(a.Node(3)), Peers: map[dmutex.NodeID]string{1: listener.Addr().String()},
	}, defaultPace)
	nc, err := listener.Accept()
	require.NoError(t, err)
	require.Empty(t, requireEnd(t, tls.Server(byHand(t, nc), stranger(a.Node(2)))), "it greets")
}

// An intermediate authority may sign a node's certificate, if the node also shows the
// certificate of that authority. Both sides accept this.
func TestTLSIntermediateAuthority(t *testing.T) {
	a := NewAuthority(t)
	issuer := &Authority{a.Below(&x509.Certificate{Subject: pkix.Name{CommonName: "below"}})}
	node := func(id dmutex.NodeID) tls.Certificate {
		cert := issuer.Node(id)
		cert.Certificate = append(cert.Certificate, issuer.Cert.Raw)
		return cert
	}
	listener := listenByHand(t)
	l, got := openLinkWith(t, Config{
		Self: 2, TLS: a.Config(node(2)), Peers: map[dmutex.NodeID]string{1: listener.Addr().String(), 3: ""},
	}, defaultPace)
	dialed := answer(t, tls.Server(meetByHand(t, listener), stranger(node(1))), 1, 2)
	sendByHand(t, dialed, "from below")
	require.Equal(t, arrival{1, "from below"}, next(t, got))

	accepted := tls.Client(dialByHand(t, l), stranger(node(3)))
	require.NoError(t, writeGreeting(accepted, 3, 2))
	sendByHand(t, accepted, "also")
	require.Equal(t, arrival{3, "also"}, next(t, got))
}

// verified is a VerifyConnection of the application. It fails if the link's checks have
// not run before it.
func verified(cs tls.ConnectionState) error {
	if len(cs.VerifiedChains) == 0 {
		return errors.New("nothing was verified")
	}
	return nil
}

// The application's NodeOf names the nodes, and its VerifyConnection has the last word.
func TestTLSOwnRules(t *testing.T) {
	a := NewAuthority(t)
	numbers := map[string]dmutex.NodeID{"n1.example": 1, "n2.example": 2, "n3.example": 3}
	var refused atomic.Int32
	config := a.Config(a.Issue(named("n1.example")))
	config.VerifyConnection = func(cs tls.ConnectionState) error {
		if err := verified(cs); err != nil {
			return err
		}
		if cs.PeerCertificates[0].DNSNames[0] == "n3.example" {
			refused.Add(1)
			return errors.New("node 3 has been dismissed")
		}
		return nil
	}
	l, got := openLinkWith(t, Config{Self: 1, TLS: config, NodeOf: func(c *x509.Certificate) (dmutex.NodeID, error) {
		return numbers[c.DNSNames[0]], nil
	}}, defaultPace)
	c := tls.Client(dialByHand(t, l), stranger(a.Issue(named("n3.example"))))
	_, _ = c.Write(append(greetingBytes(3, 1), appendFrame(nil, []byte("dismissed"))...))
	require.Empty(t, requireEnd(t, c))
	require.EqualValues(t, 1, refused.Load())
	c = tls.Client(dialByHand(t, l), stranger(a.Issue(named("n2.example"))))
	_, err := c.Write(append(greetingBytes(2, 1), appendFrame(nil, []byte("genuine"))...))
	require.NoError(t, err)
	require.Equal(t, arrival{2, "genuine"}, next(t, got))
}

// Certificates may change while the link is in use: the next connection shows
// the new one, on either side.
func TestTLSRotation(t *testing.T) {
	a := NewAuthority(t)
	var current atomic.Pointer[tls.Certificate]
	rotate := func(host string) {
		cert := a.Issue(named(host, "dmutex:node:2"))
		current.Store(&cert)
	}
	config := a.Config()
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil }
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return current.Load(), nil }
	listener := listenByHand(t)
	l, got := openLinkWith(t, Config{
		Self:  2,
		TLS:   config,
		Peers: map[dmutex.NodeID]string{1: listener.Addr().String(), 3: ""},
	}, defaultPace)
	for _, host := range []string{"old.example", "new.example"} {
		rotate(host)
		dialed := answer(t, tls.Server(meetByHand(t, listener), stranger(a.Node(1))), 1, 2)
		accepted := tls.Client(dialByHand(t, l), stranger(a.Node(3)))
		greet(t, accepted, 3, 2)
		for _, c := range []*tls.Conn{dialed, accepted} {
			require.Equal(t, []string{host}, c.ConnectionState().PeerCertificates[0].DNSNames)
			sendByHand(t, c, "hello")
			next(t, got) // so that the link uses this connection, and no older one
		}
		rotate("later.example") // does not change existing connections
		require.NoError(t, l.Send(1, []byte("still here")))
		require.NoError(t, l.Send(3, []byte("still here")))
		require.Equal(t, "still here", readByHand(t, dialed))
		require.Equal(t, "still here", readByHand(t, accepted))
		dialed.NetConn().Close()
	}
}

// A group moves from one authority to another while it runs.
func TestSetTLS(t *testing.T) {
	a, b := NewAuthority(t), NewAuthority(t)
	l, got := openLinkWith(t, Config{Self: 1, TLS: a.Config(a.Node(1))}, defaultPace)
	greet := func(from dmutex.NodeID, by *Authority) (*tls.Conn, error) {
		c := tls.Client(dialByHand(t, l), stranger(by.Node(from)))
		_, _ = c.Write(greetingBytes(from, 1))
		_, err := readGreeting(c, from)
		return c, err
	}
	old, err := greet(2, a)
	require.NoError(t, err)
	_, err = greet(3, b)
	require.Error(t, err)

	both := b.Config(b.Node(1))
	both.RootCAs.AddCert(a.Cert)
	require.NoError(t, l.SetTLS(both))
	sendByHand(t, old, "still here")
	require.Equal(t, arrival{2, "still here"}, next(t, got))
	_, err = greet(3, a)
	require.NoError(t, err)
	c, err := greet(3, b)
	require.NoError(t, err)
	require.NoError(t, c.ConnectionState().PeerCertificates[0].CheckSignatureFrom(b.Cert))

	require.NoError(t, l.SetTLS(b.Config(b.Node(1))))
	_, err = greet(3, a)
	require.Error(t, err)
	require.ErrorIs(t, l.SetTLS(b.Config(b.Node(2))), dmutex.ErrMisuse)
	require.ErrorIs(t, l.SetTLS(nil), dmutex.ErrMisuse)
	c, err = greet(3, b)
	require.NoError(t, err)
	node, err := NodeOf(c.ConnectionState().PeerCertificates[0])
	require.NoError(t, err)
	require.Equal(t, l.self, node, "what was refused has changed nothing")
	sendByHand(t, c, "new")
	require.Equal(t, arrival{3, "new"}, next(t, got))

	plain, _ := openLink(t, 1, defaultPace)
	require.ErrorIs(t, plain.SetTLS(a.Config(a.Node(1))), dmutex.ErrMisuse)
}

// A peer that does not read does not delay Send, and Close for a moment only, although TLS would say farewell.
func TestTLSSlowReader(t *testing.T) {
	a := NewAuthority(t)
	l, _ := openLinkWith(t, Config{Self: 1, TLS: a.Config(a.Node(1))}, defaultPace)
	c := tls.Client(dialByHand(t, l), stranger(a.Node(2)))
	greet(t, c, 2, 1)
	frame := make([]byte, maxFrame)
	var err error
	for err == nil {
		err = l.Send(2, frame)
	}
	require.ErrorIs(t, err, transport.ErrFull)
	require.NoError(t, l.Close())
	requireEnd(t, c)
}

// Every connection is checked in full: none resumes an earlier one, even if the
// other side and the application's tls.Config allow that.
func TestTLSFullHandshakes(t *testing.T) {
	a := NewAuthority(t)
	listener := listenByHand(t)
	willing := func(c *tls.Config) { c.ClientSessionCache = tls.NewLRUClientSessionCache(1) }
	l, got := openLinkWith(t, Config{
		Self:  2,
		TLS:   with(a.Config(a.Node(2)), willing),
		Peers: map[dmutex.NodeID]string{1: listener.Addr().String(), 3: ""},
	}, defaultPace)
	server, client := stranger(a.Node(1)), with(stranger(a.Node(3)), willing)
	for range 2 {
		dialed := answer(t, tls.Server(meetByHand(t, listener), server), 1, 2)
		sendByHand(t, dialed, "hello")
		next(t, got) // a ticket would have come before
		require.False(t, dialed.ConnectionState().DidResume)
		require.NoError(t, dialed.NetConn().Close())

		accepted := tls.Client(dialByHand(t, l), client)
		greet(t, accepted, 3, 2) // here too
		require.False(t, accepted.ConnectionState().DidResume)
		require.NoError(t, accepted.NetConn().Close())
	}
}

// Closing does not wait to say farewell to a peer that does not read.
func TestTLSClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewAuthority(t)
		l := &Link{self: 1, nodeOf: NodeOf}
		require.NoError(t, l.secure(a.Config(a.Node(1))))
		near, far := net.Pipe()
		accepted, dialed := l.guard.Load().over(near, false), tls.Client(far, stranger(a.Node(2)))
		go func() { _, _ = dialed.Write([]byte{1}) }()
		_, err := accepted.Read(make([]byte, 1))
		require.NoError(t, err)
		start := time.Now()
		require.NoError(t, accepted.Close())
		require.Zero(t, time.Since(start)) // by the bubble's clock
		require.NoError(t, far.Close())
	})
}

// A process that begins a handshake and does not complete it is disconnected.
func TestTLSHandshakeDeadline(t *testing.T) {
	a := NewAuthority(t)
	pace := defaultPace
	pace.greeting = 50 * time.Millisecond
	listener := listenByHand(t)
	l, _ := openLinkWith(t, Config{
		Self:  2,
		TLS:   a.Config(a.Node(2)),
		Peers: map[dmutex.NodeID]string{1: listener.Addr().String()},
	}, pace)
	for _, beginning := range []string{"", "\x16\x03\x01\x00\xff"} {
		c := dialByHand(t, l)
		_, err := io.WriteString(c, beginning)
		require.NoError(t, err)
		requireEnd(t, c)
	}
	c, err := listener.Accept() // here the link begins, and the test does not answer
	require.NoError(t, err)
	requireEnd(t, byHand(t, c))
}

// The commands of docs/security.md make certificates that the link accepts.
func TestTLSCommands(t *testing.T) {
	version, err := exec.Command("openssl", "version").Output()
	if err != nil || !strings.HasPrefix(string(version), "OpenSSL 3") {
		t.Skip("OpenSSL 3 is not there")
	}
	page, err := os.ReadFile("../../docs/security.md")
	require.NoError(t, err)
	script := "set -e\n" + regexp.MustCompile("(?ms)^openssl.*?^```").FindString(string(page))
	dir := t.TempDir()
	sh := exec.Command("sh", "-c", strings.TrimSuffix(script, "```"))
	sh.Dir = dir
	out, err := sh.CombinedOutput()
	require.NoError(t, err, "%s\n%s\n%s", version, script, out)

	pem, err := os.ReadFile(filepath.Join(dir, "authority.pem"))
	require.NoError(t, err)
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(pem))
	cert, err := tls.LoadX509KeyPair(filepath.Join(dir, "node.pem"), filepath.Join(dir, "node.key"))
	require.NoError(t, err)
	l, err := New(Config{
		Self:   7,
		Listen: "127.0.0.1:0",
		TLS:    &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots},
	})
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// A plain link connects only to loopback, even if a name resolves to another address.
func TestPlainStaysHome(t *testing.T) {
	l, _ := openLink(t, 1, defaultPace)
	p := l.peers[2]
	p.addr = "192.0.2.1:7000" // as if localhost resolved to that
	_, err := p.connect()
	require.ErrorContains(t, err, "192.0.2.1:7000 is beyond loopback")
	require.ErrorContains(t, l.control("tcp", "[::]:7000", nil), "beyond loopback")
	l.anywhere = true
	require.NoError(t, l.control("tcp", "192.0.2.1:7000", nil))
}
