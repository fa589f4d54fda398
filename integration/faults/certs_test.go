//go:build unix

package faults

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// An authority signs the workers' certificates. Each worker gets the authority's key,
// because all workers run this program and trust each other.
type authority struct {
	Cert []byte
	Key  ed25519.PrivateKey
}

func newAuthority(t *testing.T) authority {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	template := certificate()
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return authority{cert, key}
}

func certificate() *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
}

// config is the TLS configuration of a node.
func (a authority) config(id dmutex.NodeID) *tls.Config {
	issuer, err := x509.ParseCertificate(a.Cert)
	must(err)
	name, err := url.Parse(fmt.Sprintf("dmutex:node:%d", id))
	must(err)
	leaf := certificate()
	leaf.URIs, leaf.KeyUsage = []*url.URL{name}, x509.KeyUsageDigitalSignature
	leaf.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} // checked if nodes have no fixed numbers
	leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	own, err := x509.CreateCertificate(rand.Reader, leaf, issuer, a.Key.Public(), a.Key)
	must(err)
	roots := x509.NewCertPool()
	roots.AddCert(issuer)
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{{Certificate: [][]byte{own}, PrivateKey: a.Key}}}
}
