//go:build unix

package faults

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/certtest"
)

// Papers are what a process needs for TLS.
type papers struct{ Authority, Cert, Key []byte }

func issue(t *testing.T, a *certtest.Authority, id dmutex.NodeID) papers {
	cert := a.Issue(&x509.Certificate{
		URIs:        []*url.URL{{Scheme: "dmutex", Opaque: fmt.Sprint("node:", id)}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, // checked if nodes have no fixed numbers
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	require.NoError(t, err)
	return papers{a.Cert.Raw, cert.Certificate[0], key}
}

func (p papers) config() *tls.Config {
	authority, err := x509.ParseCertificate(p.Authority)
	must(err)
	key, err := x509.ParsePKCS8PrivateKey(p.Key)
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(authority)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{p.Cert}, PrivateKey: key}}}
}
