// Package nats links NATS into the tool.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// Broker is what a build with NATS has as [tool.NATS].
var Broker = &tool.Broker{Connect: connect, Open: open, Join: join, Visit: visit, Serve: serve}

func connect(url, name string, self dmutex.NodeID, prefix string) (transport.DynamicLink, func(), error) {
	nc, err := dial(url, name, tool.TLS{})
	if err != nil {
		return nil, nil, err
	}
	link, err := natslink.New(nc, natslink.Config{Self: self, Prefix: prefix})
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return link, func() {
		_ = link.Close() // the node may have closed it
		nc.Close()
	}, nil
}

func open(c tool.StoreConfig) (s store.Store, stop func(), err error) {
	nc, err := dial(c.URL, c.Name, c.TLS)
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc)
	if err == nil {
		s, err = natsstore.Open(context.Background(), js, c.Bucket, c.Record) // it does not wait for long
	}
	if err != nil {
		nc.Close()
		return nil, nil, err
	}
	return s, nc.Close, nil
}

func join(ctx context.Context, url, group string, security tool.TLS, cfg node.Config) (n *node.Node, stop func(), err error) {
	if !strings.HasPrefix(url, "tls://") {
		security = tool.TLS{} // it is for clients
	}
	nc, err := dial(url, "dmutex serve "+cfg.Name, security)
	if err != nil {
		return nil, nil, err
	}
	clients, err := natsclient.Listen(nc, clientsOf+group)
	if err == nil {
		cfg.Clients.Listeners = append(cfg.Clients.Listeners, clients)
		if n, err = natsnode.Open(ctx, nc, group, cfg); err == nil {
			return n, nc.Close, nil
		}
	}
	nc.Close()
	return nil, nil, err
}

// clientsOf begins the subjects of the clients of a group, which may read no others.
const clientsOf = "dmutex-clients."

func visit(url, group, name string, security tool.TLS) (c client.Config, stop func(), err error) {
	nc, err := dial(url, name, security)
	if err != nil {
		return c, nil, err
	}
	return client.Config{Members: []string{clientsOf + group}, Dial: natsclient.Dialer(nc)}, nc.Close, nil
}

// dial connects to one of the servers, which commas separate. Its error names
// them without the user, password or token that stands before an address.
func dial(servers, name string, security tool.TLS) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond), // by default it is 2 s, for which no lock moves
	}
	if security.Cert != "" {
		options = append(options, nats.ClientCert(security.Cert, security.Key), nats.RootCAs(security.Authority))
	}
	nc, err := nats.Connect(servers, options...)
	if err == nil {
		return nc, nil
	}
	if parse, ok := errors.AsType[*url.Error](err); ok {
		err = parse.Err // parse itself quotes the whole URL
	}
	return nil, fmt.Errorf("nats server at %s: %w", credentials.ReplaceAllString(servers, "$1"), err)
}

// credentials stand between the scheme of a server, if it has one, and its host.
var credentials = regexp.MustCompile(`([a-z]+://)?[^,]*@`)

// serve runs a nats-server in this process.
func serve(at string) (clients string, stop func(), err error) {
	options := &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true}
	if at != "" {
		u, err := url.Parse(at)
		if err != nil {
			return "", nil, err
		}
		if options.Port, err = strconv.Atoi(u.Port()); err != nil {
			return "", nil, fmt.Errorf("embedded nats-server: the port of %s: %w", at, err)
		}
	}
	ns, err := server.NewServer(options)
	if err != nil {
		return "", nil, fmt.Errorf("embedded nats-server: %w", err)
	}
	stop = func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	}
	ns.Start()
	if !ns.ReadyForConnections(5 * time.Second) {
		stop()
		return "", nil, errors.New("embedded nats-server: not ready within 5 s")
	}
	return ns.ClientURL(), stop, nil
}
