package tool

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS is the flags of a certificate.
type TLS struct {
	Cert      string `env:"DMUTEX_CERT" and:"tls" placeholder:"FILE" help:"The certificate of this process, PEM."`
	Key       string `env:"DMUTEX_KEY" and:"tls" placeholder:"FILE" help:"The certificate's key, PEM."`
	Authority string `env:"DMUTEX_AUTHORITY" and:"tls" placeholder:"FILE" help:"The authority that signed the certificates of the others, PEM."`
}

// Config is for connections that both sides authenticate, or nil without a certificate. It reads
// the certificate for each connection, so one that is renewed need not be announced.
func (t TLS) Config() (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	authority, err := os.ReadFile(t.Authority)
	if err != nil {
		return nil, err
	}
	load := func() (*tls.Certificate, error) {
		c, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("--cert=%s --key=%s: %w", t.Cert, t.Key, err)
		}
		return &c, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	all := x509.NewCertPool()
	if !all.AppendCertsFromPEM(authority) {
		return nil, errors.New("--authority=" + t.Authority + ": it has no certificate in PEM")
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: all, ClientCAs: all, ClientAuth: tls.RequireAndVerifyClientCert,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() },
	}, nil
}
