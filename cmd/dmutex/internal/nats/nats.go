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

// over connects to one of the servers, and makes something of the connection. stop closes the
// connection.
func over[T any](servers, name string, security tool.TLS, use func(*nats.Conn) (T, error)) (made T, stop func(), err error) {
	nc, err := dial(servers, name, security)
	if err != nil {
		return made, nil, err
	}
	if made, err = use(nc); err != nil {
		nc.Close()
		return made, nil, err
	}
	return made, nc.Close, nil
}

func connect(url, name string, self dmutex.NodeID, prefix string) (transport.DynamicLink, func(), error) {
	return over(url, name, tool.TLS{}, func(nc *nats.Conn) (transport.DynamicLink, error) {
		return natslink.New(nc, natslink.Config{Self: self, Prefix: prefix})
	})
}

func open(url, bucket, record, name string, security tool.TLS) (store.Store, func(), error) {
	return over(url, name, security, func(nc *nats.Conn) (store.Store, error) {
		js, err := jetstream.New(nc)
		if err != nil {
			return nil, err
		}
		return natsstore.Open(context.Background(), js, bucket, record) // it does not wait for long
	})
}

func join(ctx context.Context, url, group string, security tool.TLS, cfg node.Config) (*node.Node, func(), error) {
	if !strings.HasPrefix(url, "tls://") {
		security = tool.TLS{} // it is for clients
	}
	return over(url, "dmutex serve "+cfg.Name, security, func(nc *nats.Conn) (*node.Node, error) {
		clients, err := natsclient.Listen(nc, clientsOf+group)
		if err != nil {
			return nil, err
		}
		cfg.Clients.Listeners = append(cfg.Clients.Listeners, clients)
		return natsnode.Open(ctx, nc, group, cfg)
	})
}

// clientsOf begins the subjects of the clients of a group, which may read no others.
const clientsOf = "dmutex-clients."

func visit(url, group, name string, security tool.TLS) (client.Config, func(), error) {
	return over(url, name, security, func(nc *nats.Conn) (client.Config, error) {
		return client.Config{Members: []string{clientsOf + group}, Dial: natsclient.Dialer(nc)}, nil
	})
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
