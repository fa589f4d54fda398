package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// In some worlds TCP is secured: one authority issues certificates for all machines, and members get new ones now and then.

// certificates returns how a process authenticates itself and others, in the strict mode as a number.
func (p *process) certificates(self dmutex.NodeID) *tls.Config {
	template := &x509.Certificate{DNSNames: []string{p.name}, IPAddresses: []net.IP{net.ParseIP(p.at.ip)}}
	if self != dmutex.None {
		template.URIs = []*url.URL{{Scheme: "dmutex", Opaque: "node:" + self.String()}}
	}
	issued := p.w.authority.Issue(template)
	pool := p.w.authority.Pool()
	return &tls.Config{RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, Certificates: []tls.Certificate{issued}}
}

// dialSecurely connects a client with a member.
func (p *process) dialSecurely(ctx context.Context, address string) (net.Conn, error) {
	raw, err := p.socket.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	own := p.certificates(dmutex.None)
	own.ServerName, _, _ = net.SplitHostPort(address)
	c := tls.Client(raw, own)
	if err := c.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// renew gives a member another certificate.
func (w *World) renew(s *slot, p *process) {
	if link, ok := p.hop.(*tcplink.Link); ok {
		self := s.place
		if !w.strict {
			self = dmutex.None
		}
		require.NoError(w.t, link.SetTLS(p.certificates(self)))
		w.count("renew")
	}
}
