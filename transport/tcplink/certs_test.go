package tcplink

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// An Authority issues certificates, here and in the tests outside the package.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  crypto.Signer
}

func NewAuthority(t testing.TB) *Authority {
	a := &Authority{t: t}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
		NotBefore:             time.Now().AddDate(0, 0, -1),
		NotAfter:              time.Now().AddDate(0, 0, 1),
	}
	root := a.sign(template)
	a.cert, a.key = root.Leaf, root.PrivateKey.(crypto.Signer)
	return a
}

// sign issues a certificate; the first one signs itself.
func (a *Authority) sign(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// A leaf is what a node's certificate is made of.
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
	return a.sign(leaf("dmutex:node:" + id.String()))
}

// Host issues the certificate of a host, by name or by IP address.
func (a *Authority) Host(host string) tls.Certificate {
	template := leaf()
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	return a.sign(template)
}

// Config is what a node is given that shows the certificate and trusts the
// authority.
func (a *Authority) Config(certs ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{Certificates: certs, RootCAs: roots}
}
