package tcplink

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/url"
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/certtest"
)

// An Authority issues certificates, here and in the tests outside the package.
type Authority struct{ *certtest.Authority }

func NewAuthority(t testing.TB) *Authority { return &Authority{certtest.New(t)} }

// leaf returns the template of a node's certificate.
func leaf(names ...string) *x509.Certificate {
	template := &x509.Certificate{
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range names {
		uri, err := url.Parse(name)
		if err != nil {
			panic(err)
		}
		template.URIs = append(template.URIs, uri)
	}
	return template
}

// Node issues the certificate of a node.
func (a *Authority) Node(id dmutex.NodeID) tls.Certificate {
	return a.Issue(leaf("dmutex:node:" + id.String()))
}

// Host issues the certificate of a host, by name or by IP address.
func (a *Authority) Host(host string) tls.Certificate {
	template := leaf()
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	return a.Issue(template)
}

// Config is for a node that shows the certificates and trusts the authority.
func (a *Authority) Config(certs ...tls.Certificate) *tls.Config {
	return &tls.Config{Certificates: certs, RootCAs: a.Pool()}
}
