package tcplink_test

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log"
	"math/big"
	"net/url"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// An authority issues a certificate for each node. In production the
// authority is a separate program, and a node sees only its own key and the authority's
// certificate.
func Example_certificates() {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	check(err)
	authority := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	root, err := x509.ParseCertificate(issue(authority, authority, key.Public(), key))
	check(err)
	roots := x509.NewCertPool()
	roots.AddCert(root)

	links := make(map[dmutex.NodeID]*tcplink.Link)
	for _, id := range []dmutex.NodeID{1, 2} {
		public, private, err := ed25519.GenerateKey(rand.Reader)
		check(err)
		cert := issue(&x509.Certificate{
			SerialNumber: big.NewInt(1 + int64(id)),
			NotAfter:     time.Now().AddDate(0, 0, 90),
			KeyUsage:     x509.KeyUsageDigitalSignature,
			ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			URIs:         []*url.URL{{Scheme: "dmutex", Opaque: "node:" + id.String()}},
		}, root, public, key)
		links[id], err = tcplink.New(tcplink.Config{
			Self:   id,
			Listen: "127.0.0.1:0",
			TLS: &tls.Config{
				Certificates: []tls.Certificate{{Certificate: [][]byte{cert}, PrivateKey: private}},
				RootCAs:      roots,
			},
		})
		check(err)
	}
	check(links[1].SetPeer(2, links[2].Addr().String()))
	check(links[2].SetPeer(1, links[1].Addr().String()))

	heard := make(chan string)
	check(links[1].Open(transport.Host{Deliver: func(from dmutex.NodeID, frames [][]byte) {
		for _, frame := range frames {
			heard <- fmt.Sprintf("node %d says %s", from, frame)
		}
	}}))
	check(links[2].Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	check(links[2].Send(1, []byte("hello")))
	fmt.Println(<-heard)
	check(links[1].Close())
	check(links[2].Close())
	// Output: node 2 says hello
}

// issue returns a certificate that the parent has signed.
func issue(cert, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) []byte {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, key)
	check(err)
	return der
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
