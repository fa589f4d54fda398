package tool

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// NATS is how commands reach NATS. It is nil in a build without -tags nats: the
// client and the server cost 45 MB to download and half a minute to compile, and
// most commands do not need them.
var NATS *Broker

// A Broker connects to servers, and runs one.
type Broker struct {
	// Connect makes a link over one of the servers of a URL. The name is for the operators of
	// the server. stop closes the connection.
	Connect func(url, name string, self dmutex.NodeID, prefix string) (link transport.DynamicLink, stop func(), err error)
	// Open returns what opens records in a bucket, for locks with a lease, over one connection, which is made late.
	// stop closes it.
	Open func(url, bucket, name string, lease time.Duration, security Security) (open func(record string) store.Store, stop func())
	// Join opens a member of the group of this name, which also serves clients over NATS. stop
	// closes the connections.
	Join func(ctx context.Context, url, group string, security Security, cfg node.Config) (n *node.Node, stop func(), err error)
	// Visit says how a client reaches the members of the group of this name, over a connection that is made late.
	// An error of Dial that does not pass wraps [store.ErrUnusable]. stop closes the connection.
	Visit func(url, group, name string, security Security) (c client.Config, stop func())
	// Serve runs a server in this process: at the URL of one that was stopped, or, if
	// that is empty, at a free port of the loopback interface.
	Serve func(at string) (url string, stop func(), err error)
}

// ErrNoNATS refuses NATS in a build without it.
var ErrNoNATS = errors.New("this dmutex was built without NATS: add -tags nats, as in go run -tags nats ./cmd/dmutex or go install -tags nats ./cmd/dmutex")

// A Base keeps records: a database, a cluster, a bucket. Its store connects when a record is first needed, and an error
// of that which does not pass wraps [store.ErrUnusable].
type Base struct {
	Lock  func(name string) store.Store // the record of a lock
	Name  string                        // of the group at the URL, empty if it names none
	Group store.Store                   // its record
	Stop  func()                        // closes the connection
}

// Bases returns the base at a URL, by its scheme, for groups or locks with this lease. A build lacks those that need a tag
// which it was not built with.
var Bases = make(map[string]func(url string, lease time.Duration) (*Base, error))

// tags are what a build needs for the base of a scheme.
var tags = map[string]string{"postgres": "postgres", "postgresql": "postgres", "etcd": "etcd", "etcds": "etcd", "redis": "redis", "rediss": "redis"}

// A URL is what SCHEME://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME?OPTIONS says of servers.
type URL struct {
	Scheme         string
	Hosts          []string
	User, Password string
	Name           string
	Options        url.Values
}

// ParseURL reads a URL with any number of hosts and these options. Its error quotes no password.
func ParseURL(text string, options ...string) (u URL, err error) {
	scheme, rest, _ := strings.Cut(text, "://")
	rest, query, _ := strings.Cut(rest, "?")
	user := ""
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, rest = rest[:i], rest[i+1:]
	}
	hosts, name, _ := strings.Cut(rest, "/")
	u = URL{Scheme: scheme, Hosts: strings.Split(hosts, ","), Name: strings.Trim(name, "/")}
	word, secret, _ := strings.Cut(user, ":")
	if u.User, err = url.PathUnescape(word); err == nil {
		u.Password, err = url.PathUnescape(secret)
	}
	if err != nil || hosts == "" {
		return u, fmt.Errorf("it is not %s://HOST:PORT/NAME", scheme)
	}
	if u.Options, err = url.ParseQuery(query); err != nil {
		return u, err
	}
	for key := range u.Options {
		if !slices.Contains(options, key) {
			return u, fmt.Errorf("%s:// has no %q: only %s may follow the question mark", scheme, key, strings.Join(options, " and "))
		}
	}
	return u, nil
}

// RecordName returns the name of the record of a lock, which every store takes: the letters, digits,
// - and _ of the lock's name, and =XX for all other bytes.
func RecordName(lock string) string {
	var b strings.Builder
	for _, c := range []byte(lock) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}

// A Place is a path of a file or directory, a name at NATS servers, which commas separate, or the URL of a [Base].
type Place struct {
	Path          string
	Servers, Name string
	URL           string
}

// Base opens what the URL names, without asking it anything yet.
func (p *Place) Base(lease time.Duration) (*Base, error) {
	scheme, _, _ := strings.Cut(p.URL, "://")
	open := Bases[scheme]
	if open == nil {
		return nil, fmt.Errorf("this dmutex was built without %s://: add -tags %s, as in go install -tags %[2]s ./cmd/dmutex", scheme, tags[scheme])
	}
	return open(p.URL, lease)
}

// Decode implements [kong.MapperValue].
func (p *Place) Decode(line *kong.DecodeContext) error {
	text, err := verbatim(line)
	if err != nil {
		return err
	}
	return p.Parse(text)
}

// Parse reads a path, or a URL such as nats://HOST:PORT/NAME. A path may have any bytes.
func (p *Place) Parse(text string) error {
	scheme, rest, isURL := strings.Cut(text, "://")
	switch {
	case !isURL:
		p.Path = text
	case !utf8.ValidString(text):
		return errors.New("a byte of this URL is not UTF-8: choose a name in UTF-8, or write %XX for the byte in file:///directory or a password")
	case scheme == "file":
		u, err := url.Parse(text)
		if err != nil {
			return err
		}
		if u.Host != "" {
			return fmt.Errorf("%q names the host %q: give a path, or file:///path with three slashes", text, u.Host)
		}
		p.Path = u.Path
	case hidesPassword(scheme, rest):
		return errors.New("a URL has %3F for a question mark, %23 for # and %40 for @ in a user, a password or an option") // no word of the text: it contains a password
	case scheme == "nats" || scheme == "tls":
		servers, name := path.Split(rest)
		servers = strings.TrimSuffix(servers, "/")
		last := strings.TrimPrefix(servers[strings.LastIndex(servers, ",")+1:], scheme+"://")
		if servers == "" || name == "" || strings.Contains(last[strings.LastIndex(last, "@")+1:], "/") {
			return fmt.Errorf("it is not %s://HOST:PORT/NAME", scheme) // the text may contain a password
		}
		p.Servers, p.Name = scheme+"://"+servers, name
	case Bases[scheme] != nil || tags[scheme] != "":
		p.URL = text
	default:
		return fmt.Errorf("this tool has no store for %s://, only files, kube://, s3://, nats://, postgres://, etcd:// and redis://: for another, write a program", scheme)
	}
	if *p == (Place{}) {
		return errors.New("give a path")
	}
	return nil
}

// hidesPassword reports whether a password seems to end at a ? or # that belongs to it. What follows would pass for an option or
// a name, and be shown.
func hidesPassword(scheme, rest string) bool {
	i := strings.IndexAny(rest, "?#")
	if i < 0 || strings.Contains(rest[:i], "@") || !strings.Contains(rest[i:], "@") {
		return false
	}
	_, port, has := strings.Cut(rest[:i], ":")
	if strings.HasPrefix(scheme, "postgres") { // its options may have an @, as in ?user=me@tenant
		return has && (port == "" || strings.Trim(port, "0123456789") != "") && !strings.Contains(port, "/")
	}
	return has
}

// Security is the flags by which a process and its servers know each other.
type Security struct {
	Cert      string `env:"DMUTEX_CERT" and:"tls" placeholder:"FILE" help:"The certificate of this process, PEM."`
	Key       string `env:"DMUTEX_KEY" and:"tls" placeholder:"FILE" help:"The certificate's key, PEM."`
	Authority string `env:"DMUTEX_AUTHORITY" placeholder:"FILE" help:"The authority that signed the certificates of the others, PEM. Alone it is for NATS servers that want no certificate of this process."`
	Creds     string `env:"DMUTEX_CREDS" xor:"nats" placeholder:"FILE" help:"The credentials of a NATS user, as nsc makes them."`
	NKey      string `name:"nkey" env:"DMUTEX_NKEY" xor:"nats" placeholder:"FILE" help:"The seed of a NATS user's nkey."`
	Inbox     string `env:"DMUTEX_INBOX" placeholder:"SUBJECT" help:"Where NATS may answer this user, if not anywhere, such as _INBOX.alice."`
}

// Check refuses flags that do nothing, with NATS and with TCP.
func (t Security) Check(nats, tcp bool) error {
	switch {
	case !nats && (t.Creds != "" || t.NKey != "" || t.Inbox != ""):
		return errors.New("--creds, --nkey and --inbox are for NATS")
	case tcp && (t.Cert == "") != (t.Authority == ""):
		return errors.New("--cert, --key and --authority belong together, except for NATS")
	}
	return nil
}

// Listen secures the connections of clients that a listener accepts, if there is a certificate. It reads
// the files for each connection, so nobody need be told that one was renewed.
func (t Security) Listen(l net.Listener) (net.Listener, error) {
	if t.Cert == "" {
		return l, nil
	}
	if _, err := t.read(); err != nil {
		return nil, err
	}
	return tls.NewListener(l, &tls.Config{
		MinVersion:         tls.VersionTLS13,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.read() },
	}), nil
}

// Dial returns what connects with a member over TCP: with TLS if there is a certificate. It reads the files
// for each connection, too.
func (t Security) Dial() (func(ctx context.Context, address string) (net.Conn, error), error) {
	if t.Cert == "" {
		return nil, nil
	}
	if _, err := t.read(); err != nil {
		return nil, err
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		security, err := t.read()
		if err != nil {
			return nil, err
		}
		return (&tls.Dialer{Config: security}).DialContext(ctx, "tcp", address)
	}, nil
}

// Meet secures the connections of members with each other, if there is a certificate, which must be valid for the host at which
// the others reach this one. It reads the certificate for each connection, and the authority once.
func (t Security) Meet(address string) (*tls.Config, error) {
	if t.Cert == "" {
		return nil, nil
	}
	now, err := t.read()
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(address)
	if err := now.Certificates[0].Leaf.VerifyHostname(host); err != nil {
		return nil, fmt.Errorf("--cert=%s: the other members reach this one at %s: %w", t.Cert, address, err)
	}
	own := func() (*tls.Certificate, error) {
		now, err := t.read()
		if err != nil {
			return nil, err
		}
		return &now.Certificates[0], nil
	}
	return &tls.Config{
		RootCAs:              now.RootCAs,
		GetCertificate:       func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return own() },
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own() },
	}, nil
}

// Usable returns why the certificate cannot be used now, if there is one.
func (t Security) Usable() error {
	if t.Cert == "" {
		return nil
	}
	_, err := t.read()
	return err
}

// read is for connections that both sides authenticate. It returns an error for a certificate that is
// torn, missing or not valid now: the other side could only say that it does not believe it.
func (t Security) read() (*tls.Config, error) {
	refuse := func(err error) (*tls.Config, error) {
		return nil, fmt.Errorf("--cert=%s --key=%s: %w", t.Cert, t.Key, err)
	}
	authority, err := os.ReadFile(t.Authority)
	all := x509.NewCertPool()
	if err == nil && !all.AppendCertsFromPEM(authority) {
		err = errors.New("it has no certificate in PEM")
	}
	if err != nil {
		return nil, fmt.Errorf("--authority=%s: %w", t.Authority, err)
	}
	own, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return refuse(err)
	}
	begin, end := own.Leaf.NotBefore, own.Leaf.NotAfter
	switch now := time.Now(); {
	case now.After(end):
		return refuse(fmt.Errorf("the certificate expired at %s: renew it", end.UTC().Format(time.RFC3339)))
	case now.Before(begin):
		return refuse(fmt.Errorf("the certificate is valid from %s on: check the clock of this machine", begin.UTC().Format(time.RFC3339)))
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, RootCAs: all, ClientCAs: all, ClientAuth: tls.RequireAndVerifyClientCert,
	}, nil
}
