// Package serve runs a member of a group that serves clients.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"time"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/catalog"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
	"github.com/dmutex/dmutex/node/nodehttp"
)

// Cmd is dmutex serve.
type Cmd struct {
	Group     *tool.Place   `required:"" env:"DMUTEX_GROUP" placeholder:"URL" help:"The group: the file of its record or file:///file, if all members run on one machine, or nats://HOST:PORT/NAME."`
	Listen    string        `env:"DMUTEX_LISTEN" placeholder:"HOST:PORT" help:"Where clients connect. Not needed if --group is at NATS, where clients are served, too."`
	HTTP      string        `name:"http" env:"DMUTEX_HTTP" placeholder:"HOST:PORT" help:"Where to show how the node stands, with /alive and /ready for probes, and /metrics for Prometheus."`
	Name      string        `env:"DMUTEX_NAME" help:"What the other members call this one. The default is its host and process."`
	Algorithm string        `env:"DMUTEX_ALGORITHM" default:"witnessed" help:"One of ${algorithms}. The same in all members."`
	Lease     time.Duration `env:"DMUTEX_LEASE" default:"10s" least:"100ms" most:"1h" help:"How long a member holds locks after the record has last been confirmed. The same in all members."`
	Session   time.Duration `env:"DMUTEX_SESSION" help:"How long a client holds locks after it was last heard: at most --lease, which is the default."`
	Clients   int           `env:"DMUTEX_CLIENTS" default:"4096" least:"1" help:"How many clients this member serves at most."`
	Allow     string        `env:"DMUTEX_ALLOW" placeholder:"FILE" help:"Who may take which locks. Without it every client may take all."`
	tool.Security
	AllowPlain bool          `env:"DMUTEX_ALLOW_PLAIN" help:"Let clients connect from beyond this machine without a certificate."`
	Grace      time.Duration `env:"DMUTEX_GRACE" default:"30s" least:"0s" help:"How long to wait at the end for clients to release what they hold."`
}

// Help is the text of serve --help.
func (Cmd) Help() string {
	return `Clients take locks and are no members of the group: three such members are a lock service. Clients are dmutex run --at=HOST:PORT, programs with package client, ` +
		`and any that speak the protocol in docs/clients.md.

--group=FILE is for members that all run on one machine, and meet over its loopback interface. --group=nats://HOST:PORT/NAME keeps the record of the members in JetStream, in the bucket dmutex, ` +
		`which is made if it does not exist, and they meet over NATS. Clients find them there by dmutex run --at=nats://HOST:PORT/NAME. For records in PostgreSQL or etcd, write a program with node.Config.Clients.

The first grant of a new group comes after --lease, and so it does after all members were killed. When one is killed, another takes over what its clients hold. What they do not claim there waits for a lease, even with a file, because they may live.

With --cert, --key and --authority clients need a certificate of that authority. The files of --cert, --key and --authority are read anew for each connection. They are for NATS, too, if its URL begins with tls://, and for NATS alone without --listen. --creds, --nkey and --inbox are for NATS alone.

A line of the file of --allow is WHO lock NAME, such as cert:alice lock invoices/*: a client with the name alice in its certificate may take the locks whose names begin with invoices/. With share for lock it may only share them. ` +
		`WHO may also be nats:USER, the second word of the client's inbox, or * for all clients. A comment has a line of its own, which begins with #. At SIGHUP the file is read again; a file with an error changes nothing.

SIGINT and SIGTERM end it: other members take over what clients hold. The last member waits until they have released that, or for --grace, which should be longer than --session.

The page of --http shows the names of locks and clients: keep it off the open network.

Exit status: 0 after a signal; 2 if the command line is wrong; 3 if it could not start, or cannot go on: start it again then.
Also 3 after a signal if --grace was over before clients had released what they hold, which they lose then, or before the record showed that this member has left: the others wait for a lease then.`
}

// Validate refuses what would serve nobody, or everybody.
func (c *Cmd) Validate() error {
	host, _, err := net.SplitHostPort(c.Listen)
	local := host == "localhost" || net.ParseIP(host).IsLoopback()
	_, known := catalog.Find(c.Algorithm)
	switch {
	case c.Group == nil: // the error is that it is missing
		return nil
	case c.Group.Path != "" && c.Listen == "":
		return errors.New("give --listen=HOST:PORT, where clients connect")
	case c.Group.Database != "":
		return errors.New("--group: for a record in PostgreSQL, write a program with node.Config.Clients")
	case c.Group.Path == "" && tool.NATS == nil:
		return fmt.Errorf("--group: %w", tool.ErrNoNATS)
	case c.Listen != "" && err != nil:
		return fmt.Errorf("--listen=%s: give HOST:PORT", c.Listen)
	case c.Listen != "" && !local && c.Cert == "" && !c.AllowPlain:
		return fmt.Errorf("--listen=%s is open to other machines: give --cert, --key and --authority, or --allow-plain", c.Listen)
	case c.Session != 0 && (c.Session < 100*time.Millisecond || c.Session > c.Lease):
		return fmt.Errorf("--session=%v: choose 100ms to --lease, which is %v", c.Session, c.Lease)
	case !membership.IsName(c.Name):
		return fmt.Errorf("--name=%q: choose printable text of at most 64 bytes", c.Name)
	case !known:
		return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, catalog.Names())
	}
	return c.Check(c.Group.Servers != "", c.Listen != "")
}

// Run serves until a signal comes.
func (c *Cmd) Run(con *tool.Console) error {
	ctx, stop := tool.Interruptible()
	defer stop()
	signal.Ignore(syscall.SIGPIPE) // the reader of the log may go away
	log := slog.New(slog.NewTextHandler(con.Err, nil))
	clients := &node.Clients{Session: c.Session, Max: c.Clients}
	p := &permissions{path: c.Allow, certs: c.Listen != "" && c.Cert != "", nats: c.Group.Path == ""}
	defer p.reload(log)()
	if c.Allow != "" {
		if err := p.load(); err != nil {
			return err
		}
		clients.Allow = p.allow
	}
	if c.Listen != "" {
		l, err := c.listen(ctx)
		if err != nil {
			return err
		}
		defer l.Close()
		log.Info("clients connect here", "address", l.Addr().String())
		clients.Listeners = append(clients.Listeners, l)
	}
	var web net.Listener // before the group is joined, so that a wrong address costs it nothing
	if c.HTTP != "" {
		l, err := net.Listen("tcp", c.HTTP)
		if err != nil {
			return fmt.Errorf("serve: --http=%s: %w", c.HTTP, err)
		}
		defer l.Close()
		web = l
	}
	algorithm, _ := catalog.Find(c.Algorithm)
	page := newPage()
	n, leave, err := c.join(ctx, node.Config{
		Name: c.Name, Algorithm: algorithm.New, Lease: c.Lease, Logger: log, Observer: page.observer(),
		Clients: clients,
	})
	switch {
	case err != nil && ctx.Err() != nil: // a signal came first
		return nil
	case err != nil:
		return err
	}
	defer leave()
	if web != nil {
		log.Info("the page is here", "address", web.Addr().String())
		server := webServer(handler(n, page, c.welcomes))
		go func() { _ = server.Serve(web) }() // it ends with Close
		defer server.Close()
	}
	select {
	case <-ctx.Done():
		stop() // a second signal ends the process
	case <-n.Done():
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), c.Grace, fmt.Errorf("the end took longer than --grace=%v", c.Grace))
	defer cancel()
	return errors.Join(n.Status().Err, n.Close(ctx))
}

// join opens the node. leave closes the connection below it.
func (c *Cmd) join(ctx context.Context, cfg node.Config) (n *node.Node, leave func(), err error) {
	if c.Group.Path == "" {
		return tool.NATS.Join(ctx, c.Group.Servers, c.Group.Name, c.Security, cfg)
	}
	n, err = filenode.Open(ctx, c.Group.Path, cfg)
	return n, func() {}, err
}

func (c *Cmd) listen(ctx context.Context) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("serve: --listen=%s: %w", c.Listen, err)
	}
	secured, err := c.Security.Listen(l)
	if err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("serve: %w", err)
	}
	return secured, nil
}

// webServer returns an HTTP server that lets nobody keep a connection who does not use it.
func webServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
}

// welcomes returns why no client can connect over TCP, although the member listens.
func (c *Cmd) welcomes() error {
	if c.Listen == "" {
		return nil
	}
	if err := c.Usable(); err != nil {
		return fmt.Errorf("clients cannot connect: %w", err)
	}
	return nil
}

// handler shows the node. It is not ready while welcomes returns an error.
func handler(n *node.Node, page *page, welcomes func() error) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_ = page.write(w, metrics.Node(n))
	})
	mux.Handle("/{$}", nodehttp.Handler(n))
	mux.Handle("/alive", nodehttp.Alive(n))
	ready := nodehttp.Ready(n)
	mux.HandleFunc("/ready", func(w http.ResponseWriter, r *http.Request) {
		if err := welcomes(); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		ready.ServeHTTP(w, r)
	})
	return mux
}
