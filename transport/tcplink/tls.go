package tcplink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/dmutex/dmutex"
)

const nodeURI = "dmutex:node:"

// NodeOf returns the node that a certificate speaks for: node 7 if it has the subject
// alternative name URI:dmutex:node:7. It returns an error for a certificate that names no
// node or several. It ignores the subject's common name, and URIs of other schemes.
func NodeOf(cert *x509.Certificate) (dmutex.NodeID, error) {
	if cert == nil {
		return dmutex.None, dmutex.Misuse("tcplink: the certificate is nil")
	}
	node := dmutex.None
	for _, uri := range cert.URIs {
		if uri.Scheme != "dmutex" {
			continue
		}
		text := uri.String()
		id, err := strconv.ParseUint(strings.TrimPrefix(text, nodeURI), 10, 64)
		switch {
		case err != nil || id == 0 || text != nodeURI+strconv.FormatUint(id, 10):
			return dmutex.None, fmt.Errorf("the certificate's name %q is not of the form %s7", text, nodeURI)
		case node != dmutex.None:
			return dmutex.None, errors.New("the certificate names several nodes")
		}
		node = dmutex.NodeID(id)
	}
	if node == dmutex.None {
		return dmutex.None, fmt.Errorf("the certificate names no node: give it the subject alternative name URI:%s7", nodeURI)
	}
	return node, nil
}

// A guard secures connections, each side checking the other.
type guard struct {
	dialing, accepting *tls.Config
	nodeOf             func(*x509.Certificate) (dmutex.NodeID, error) // nil: certificates name hosts
}

// secure guards the connections to come. It refuses what would weaken the checks, and what
// the peers would refuse of this node.
func (l *Link) secure(given *tls.Config) error {
	refuse := func(why string) error { return dmutex.Misuse("tcplink: Config.TLS" + why) }
	switch {
	case given.RootCAs == nil:
		return refuse(".RootCAs is missing: without it every public authority could name a node")
	case given.InsecureSkipVerify:
		return refuse(".InsecureSkipVerify would believe everyone")
	case given.GetConfigForClient != nil:
		return refuse(".GetConfigForClient would replace the checks: use GetCertificate")
	case given.VerifyPeerCertificate != nil:
		return refuse(".VerifyPeerCertificate is not supported: use VerifyConnection")
	case given.MaxVersion != 0 && given.MaxVersion < tls.VersionTLS13:
		return refuse(".MaxVersion is below TLS 1.3")
	case len(given.Certificates) == 0 && (given.GetCertificate == nil || given.GetClientCertificate == nil):
		return refuse(" has no certificate: give Certificates, or both GetCertificate and GetClientCertificate")
	}
	base := given.Clone()
	base.MinVersion = tls.VersionTLS13
	base.SessionTicketsDisabled, base.ClientSessionCache = true, nil // every connection is checked in full
	if base.ClientCAs == nil {
		base.ClientCAs = base.RootCAs
	}
	g := &guard{dialing: base.Clone(), accepting: base.Clone(), nodeOf: l.nodeOf}
	// Package tls wants the name of the host that it dials. A node is known by its
	// certificate wherever it runs, so verify does the checks that this switches off.
	g.dialing.InsecureSkipVerify = true
	g.dialing.VerifyConnection = verify(base, base.RootCAs, x509.ExtKeyUsageServerAuth)
	g.accepting.ClientAuth = tls.RequireAndVerifyClientCert
	g.accepting.VerifyConnection = verify(base, base.ClientCAs, x509.ExtKeyUsageClientAuth)
	l.mu.RLock()
	self := l.self
	l.mu.RUnlock()
	if err := g.checkOwn(self, l.address); err != nil {
		return err
	}
	l.guard.Store(g)
	return nil
}

// verify returns the check of the other side's certificates: they must lead to the roots, be
// meant for the use, be valid for ServerName if it is set, and pass VerifyConnection.
func verify(c *tls.Config, roots *x509.CertPool, usage x509.ExtKeyUsage) func(tls.ConnectionState) error {
	return func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 {
			return errors.New("no certificate")
		}
		options := x509.VerifyOptions{
			DNSName:       c.ServerName,
			Roots:         roots,
			Intermediates: x509.NewCertPool(),
			KeyUsages:     []x509.ExtKeyUsage{usage},
		}
		if c.Time != nil {
			options.CurrentTime = c.Time()
		}
		for _, cert := range cs.PeerCertificates[1:] {
			options.Intermediates.AddCert(cert)
		}
		chains, err := cs.PeerCertificates[0].Verify(options)
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
		}
		if c.VerifyConnection == nil {
			return nil
		}
		cs.VerifiedChains = chains
		return c.VerifyConnection(cs)
	}
}

// checkOwn checks the node's own certificates as its peers will.
func (g *guard) checkOwn(self dmutex.NodeID, address string) error {
	c := &tls.Config{ServerName: g.dialing.ServerName, Time: g.dialing.Time}
	for _, own := range g.dialing.Certificates {
		chain, err := x509.ParseCertificates(slices.Concat(own.Certificate...))
		cs := tls.ConnectionState{PeerCertificates: chain}
		if err == nil {
			err = verify(c, g.dialing.RootCAs, x509.ExtKeyUsageServerAuth)(cs)
		}
		if err == nil {
			err = verify(c, g.accepting.ClientCAs, x509.ExtKeyUsageClientAuth)(cs)
		}
		if err == nil {
			err = g.bind(chain[0], self, address)
		}
		if err != nil {
			who := "node " + self.String()
			if g.nodeOf == nil {
				who = "a node at " + address
			}
			return dmutex.Misuse(fmt.Sprintf("tcplink: Config.TLS.Certificates: the peers would refuse %s: %v", who, err))
		}
	}
	return nil
}

// over secures a connection, unless there is no guard.
func (g *guard) over(nc net.Conn, dialed bool) net.Conn {
	switch {
	case g == nil:
		return nc
	case dialed:
		return secured{tls.Client(nc, g.dialing), g}
	}
	return secured{tls.Server(nc, g.accepting), g}
}

// bind refuses a certificate that is not that of the node at the address.
func (g *guard) bind(cert *x509.Certificate, node dmutex.NodeID, address string) error {
	if g.nodeOf != nil {
		speaks, err := g.nodeOf(cert)
		if err == nil && speaks != node {
			err = fmt.Errorf("its certificate is node %d's, not node %d's", speaks, node)
		}
		return err
	}
	if g.dialing.ServerName != "" {
		return nil // verify has checked that name
	}
	host, _, _ := net.SplitHostPort(address) // checkAddress has seen it
	return cert.VerifyHostname(host)
}

// authenticate refuses a connection whose other side is not the node at the address.
func (g *guard) authenticate(nc net.Conn, node dmutex.NodeID, address string) error {
	if g == nil {
		return nil
	}
	c := nc.(secured)
	if err := c.Handshake(); err != nil { // done already, or up to the deadline
		return err
	}
	return c.guard.bind(c.ConnectionState().PeerCertificates[0], node, address) // g may be a later one
}

// A secured connection is closed without close_notify, which could wait for
// the socket: a frame has arrived completely or not at all.
type secured struct {
	*tls.Conn
	guard *guard
}

func (c secured) Close() error { return c.NetConn().Close() }
