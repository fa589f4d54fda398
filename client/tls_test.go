package client_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/lend"
)

// An authority issues certificates for this machine.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t}
	c := a.issue(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	a.cert, a.key = c.Leaf, c.PrivateKey.(*ecdsa.PrivateKey)
	return a
}

func (a *authority) issue(c *x509.Certificate) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	c.SerialNumber, c.NotBefore, c.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil { // the authority itself
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// config is that of a client or member that has a certificate of this authority.
func (a *authority) config() *tls.Config {
	cert := a.issue(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.pool(), ClientCAs: a.pool(), ClientAuth: tls.RequireAndVerifyClientCert}
}

// Clients and members authenticate each other by any certificates of one authority.
func TestTLS(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	hellos := make(chan struct{}, 100)
	cfg := ours.config()
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		hellos <- struct{}{}
		return nil, nil
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	server := lend.New(lend.Config{
		Listeners: []net.Listener{listener}, Length: time.Hour, Most: 10,
		Allow: func(net.Conn, string, string) error { return nil },
		Take: func(_, _ string, _ bool, done func(uint64, func(bool), error)) func(bool) {
			go done(7, func(bool) {}, nil)
			return func(bool) {}
		},
		Left:   func() int64 { return int64(time.Hour) },
		Lapsed: func() <-chan struct{} { return nil },
		Why:    func() error { return nil },
	})
	defer server.Close()
	use := func(cfg *tls.Config) *client.Client {
		c, err := client.New(client.Config{Members: []string{listener.Addr().String()}, TLS: cfg})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		return c
	}
	h, err := use(ours.config()).Mutex("l").Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, uint64(7), h.Fence())
	require.NoError(t, h.Release())
	<-hellos

	refused := func(cfg *tls.Config) error {
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-hellos
			<-hellos // the client has noted why it does not reach the member
			cancel()
		}()
		_, err := use(cfg).Mutex("l").Acquire(ctx)
		require.ErrorIs(t, err, context.Canceled)
		return err
	}
	err = refused(theirs.config())
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	require.ErrorContains(t, err, "no session: member "+listener.Addr().String()+": tls: failed to verify certificate")

	stranger := theirs.config()
	stranger.RootCAs, stranger.MaxVersion = ours.pool(), tls.VersionTLS12 // with which the dial fails, not the first read
	require.ErrorContains(t, refused(stranger), "tls: unknown certificate authority")
	require.Len(t, server.Status(), 1)
}
