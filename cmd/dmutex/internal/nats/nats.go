// Package nats links NATS into the tool.
package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
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
func over[T any](servers, name string, lease time.Duration, security tool.Security, use func(*nats.Conn) (T, error)) (made T, stop func(), err error) {
	nc, err := dial(servers, name, lease, security)
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
	return over(url, name, usual, tool.Security{}, func(nc *nats.Conn) (transport.DynamicLink, error) {
		return natslink.New(nc, natslink.Config{Self: self, Prefix: prefix})
	})
}

func open(url, bucket, name string, lease time.Duration, security tool.Security) (func(record string) store.Store, func()) {
	connection := late(url, name, lease, security)
	return func(record string) store.Store {
		return tool.LateStore{Late: tool.NewLate(outage, func(ctx context.Context) (store.Store, error) {
			nc, err := connection.Get(ctx)
			if err != nil {
				return nil, err
			}
			js, err := jetstream.New(nc)
			if err != nil {
				return nil, err
			}
			return natsstore.Open(ctx, js, bucket, record)
		})}
	}, func() { connection.Close((*nats.Conn).Close) }
}

// late is a connection that is made when it is needed.
func late(url, name string, lease time.Duration, security tool.Security) *tool.Late[*nats.Conn] {
	return tool.NewLate(outage, func(context.Context) (*nats.Conn, error) { return dial(url, name, lease, security) })
}

// outage reports whether an error may pass. A server that takes no more connections says so in a text. No answer
// of JetStream comes from a server without it, and from one whose cluster has no leader.
func outage(err error) bool {
	if refusal, is := errors.AsType[*jetstream.APIError](err); is {
		return refusal.Code >= 500
	}
	return tool.Outage(err) || errors.Is(err, nats.ErrNoServers) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrDisconnected) ||
		strings.Contains(strings.ToLower(err.Error()), "maximum ")
}

// join serves clients on a connection of their own: a flood of what they send delays no lease.
func join(ctx context.Context, url, group string, security tool.Security, cfg node.Config) (*node.Node, func(), error) {
	if !strings.HasPrefix(url, "tls://") && len(cfg.Clients.Listeners) > 0 {
		security.Cert, security.Authority = "", "" // they are for clients over TCP
	}
	name := "dmutex serve " + cfg.Name
	clients, leave, err := over(url, name+", clients", cfg.Lease, security, func(nc *nats.Conn) (net.Listener, error) {
		return natsclient.Listen(nc, clientsOf+group)
	})
	if err != nil {
		return nil, nil, err
	}
	served := *cfg.Clients
	served.Listeners = append(served.Listeners, clients)
	cfg.Clients = &served
	n, stop, err := over(url, name, cfg.Lease, security, func(nc *nats.Conn) (*node.Node, error) {
		return natsnode.Open(ctx, nc, group, cfg)
	})
	if err != nil {
		leave()
		return nil, nil, err
	}
	return n, func() { stop(); leave() }, nil
}

const (
	// clientsOf begins the subjects of the clients of a group, which may read no others.
	clientsOf = "dmutex-clients."

	// usual is the lease where it is not known.
	usual = 10 * time.Second
)

func visit(url, group, name string, security tool.Security) (client.Config, func()) {
	connection := late(url, name, usual, security)
	dial := func(ctx context.Context, prefix string) (net.Conn, error) {
		nc, err := connection.Get(ctx)
		if err != nil {
			return nil, err
		}
		return natsclient.Dialer(nc)(ctx, prefix)
	}
	return client.Config{Members: []string{clientsOf + group}, Dial: dial}, func() { connection.Close((*nats.Conn).Close) }
}

// dial connects to one of the servers, which commas separate. Its error names
// them without the user, password or token that stands before an address.
func dial(servers, name string, lease time.Duration, security tool.Security) (*nats.Conn, error) {
	options := []nats.Option{
		nats.Name(name), nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),                // by default it is 2 s, for which no lock moves
		nats.PingInterval(lease / 8), nats.MaxPingsOutstanding(2), // else a server that hangs is left after four minutes
	}
	if security.Cert != "" {
		options = append(options, nats.ClientCert(security.Cert, security.Key))
	}
	if security.Authority != "" {
		options = append(options, nats.RootCAs(security.Authority))
	}
	if security.Creds != "" {
		options = append(options, nats.UserCredentials(security.Creds))
	}
	if security.NKey != "" {
		key, err := nats.NkeyOptionFromSeed(security.NKey)
		if err != nil {
			return nil, fmt.Errorf("--nkey=%s: %w", security.NKey, err)
		}
		options = append(options, key)
	}
	if security.Inbox != "" {
		options = append(options, nats.CustomInboxPrefix(security.Inbox))
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
