package client_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/internal/kit/certtest"
	"github.com/dmutex/dmutex/internal/lend"
)

// tlsConfig returns the config of a client or member with a certificate of this authority.
func tlsConfig(a *certtest.Authority) *tls.Config {
	cert := a.Issue(&x509.Certificate{
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: a.Pool(), ClientCAs: a.Pool(), ClientAuth: tls.RequireAndVerifyClientCert}
}

// Clients and members authenticate each other by any certificates of one authority.
func TestTLS(t *testing.T) {
	ours, theirs := certtest.New(t), certtest.New(t)
	hellos := make(chan struct{}, 100)
	cfg := tlsConfig(ours)
	cfg.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		hellos <- struct{}{}
		return nil, nil
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", cfg)
	require.NoError(t, err)
	server := lend.New(lend.Config{
		Listeners: []net.Listener{listener}, Length: time.Hour, Most: 10,
		Allow: func(net.Conn, string, string, bool) error { return nil },
		Take: func(_ lend.Want, done func(lend.Taken, error)) lend.Stop {
			go done(lend.Taken{Fence: 7, Node: 1, Stop: func(error) {}}, nil)
			return func(error) {}
		},
		Unmet:  func(net.Addr, error) {},
		Idle:   func() string { return "" },
		Left:   func() time.Duration { return time.Hour },
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
	h, err := use(tlsConfig(ours)).Mutex("l").Acquire(t.Context())
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
	err = refused(tlsConfig(theirs))
	require.ErrorAs(t, err, new(x509.UnknownAuthorityError))
	require.ErrorContains(t, err, "no session: member "+listener.Addr().String()+": the member's certificate is not believed: tls: failed to verify certificate")

	stranger := tlsConfig(theirs)
	stranger.RootCAs, stranger.MaxVersion = ours.Pool(), tls.VersionTLS12 // so that the dial fails, not the first read
	require.ErrorContains(t, refused(stranger), "the member refuses the certificate of this client, and its log says why: remote error: tls: unknown certificate authority")
	require.Len(t, server.Status(), 1)
}
