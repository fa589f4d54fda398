// Package certtest issues certificates for tests.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// An Authority issues certificates.
type Authority struct {
	Cert *x509.Certificate
	key  *ecdsa.PrivateKey
	t    testing.TB
}

// New returns an authority that has signed its own certificate.
func New(t testing.TB) *Authority {
	return (&Authority{t: t}).Below(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"}})
}

// Below returns an authority with this certificate, which a signs.
func (a *Authority) Below(template *x509.Certificate) *Authority {
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	own := a.Issue(template)
	return &Authority{own.Leaf, own.PrivateKey.(*ecdsa.PrivateKey), a.t}
}

// Issue signs a certificate. It is valid for a day, unless the template says otherwise.
func (a *Authority) Issue(template *x509.Certificate) tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(a.t, err)
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1)
	}
	parent, signer := a.Cert, a.key
	if parent == nil { // the authority's own
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(a.t, err)
	leaf, err := x509.ParseCertificate(der)
	require.NoError(a.t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Pool returns a pool with the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return pool
}
