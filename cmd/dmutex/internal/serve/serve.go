// Package serve runs a member of a group that serves clients.
package serve

import (
	"cmp"
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
	"github.com/dmutex/dmutex/internal/metrics"
	"github.com/dmutex/dmutex/internal/names"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
	"github.com/dmutex/dmutex/node/nodehttp"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Cmd is dmutex serve.
type Cmd struct {
	Group     *tool.Place   `required:"" env:"DMUTEX_GROUP" placeholder:"URL" help:"The group: the file of its record or file:///file, if all members run on one machine, nats://HOST:PORT/NAME, kube://NAMESPACE/NAME, postgres://USER@HOST/DATABASE#NAME, etcd://HOST:PORT/NAME, redis://HOST:PORT/NAME, or s3://BUCKET/NAME."`
	Listen    string        `env:"DMUTEX_LISTEN" placeholder:"HOST:PORT" help:"Where clients connect. Not needed if --group is at NATS, where clients are served, too."`
	Meet      string        `env:"DMUTEX_MEET" placeholder:"HOST:PORT" help:"Where the other members connect, if --group is at kube://, postgres://, etcd://, redis:// or s3://."`
	Advertise string        `env:"DMUTEX_ADVERTISE" placeholder:"HOST:PORT" help:"How they reach --meet, if its host is not the one to dial."`
	HTTP      string        `name:"http" env:"DMUTEX_HTTP" placeholder:"HOST:PORT" help:"Where to show how the node stands, with /alive and /ready for probes, and /metrics for Prometheus."`
	Name      string        `env:"DMUTEX_NAME" help:"What the other members call this one. The default is its host and process."`
	Algorithm string        `env:"DMUTEX_ALGORITHM" default:"witnessed" help:"One of ${algorithms}. The same in all members."`
	Lease     time.Duration `env:"DMUTEX_LEASE" default:"10s" least:"100ms" most:"1h" help:"How long a member holds locks after the record has last been confirmed. The same in all members."`
	Session   time.Duration `env:"DMUTEX_SESSION" help:"How long a client holds locks after it was last heard: at most --lease, which is the default."`
	Clients   int           `env:"DMUTEX_CLIENTS" default:"4096" least:"1" help:"How many clients this member serves at most."`
	Allow     string        `env:"DMUTEX_ALLOW" placeholder:"FILE" help:"Who may take which locks. Without it every client may take all."`
	tool.Security
	AllowPlain bool          `env:"DMUTEX_ALLOW_PLAIN" help:"Let clients, and members, connect from beyond this machine without a certificate."`
	Grace      time.Duration `env:"DMUTEX_GRACE" default:"30s" least:"0s" help:"How long to wait at the end for clients to release what they hold."`
}

// Help is the text of serve --help.
func (Cmd) Help() string {
	return `Clients take locks and are no members of the group: three such members are a lock service. Clients are dmutex run --at=HOST:PORT, programs with package client, ` +
		`and any that speak the protocol in docs/clients.md.

--group=FILE is for members that all run on one machine, and meet over its loopback interface. --group=nats://HOST:PORT/NAME keeps the record of the members in JetStream, in the bucket dmutex, ` +
		`which is made if it does not exist, and they meet over NATS. Clients find them there by dmutex run --at=nats://HOST:PORT/NAME.

Elsewhere only the record is in the service, and members meet over TCP, at --meet. --group=kube://NAMESPACE/NAME is a Lease of Kubernetes; the service account may get, create and update leases. --group=postgres://USER@HOST/DATABASE#NAME is a row of the table dmutex_groups, called dmutex if there is no #NAME. ` +
		`--group=etcd://HOST:PORT,HOST:PORT/NAME and --group=redis://HOST:PORT/NAME are keys. --group=s3://BUCKET/NAME is an object; AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION or AWS_ENDPOINT_URL, say whose and where. For another service, write a program with node.Config.Clients.

The first grant of a new group comes after --lease, and so it does after all members were killed. When one is killed, another takes over what its clients hold. What they do not claim there waits for a lease, even with a file, because they may live.

With --cert, --key and --authority clients need a certificate of that authority. So do the members that meet at --meet, each one for the host at which the others reach it. The files of --cert, --key and --authority are read anew for each connection, but that of --authority between members once. They are for NATS, too, if its URL begins with tls://, and for NATS alone without --listen. --creds, --nkey and --inbox are for NATS alone.

A line of the file of --allow is WHO lock NAME, such as cert:alice lock invoices/*: a client with the name alice in its certificate may take the locks whose names begin with invoices/. With share for lock it may only share them. ` +
		`WHO may also be nats:USER, the second word of the client's inbox, or * for all clients. A comment has a line of its own, which begins with #. At SIGHUP the file is read again; a file with an error changes nothing.

SIGINT and SIGTERM end it: other members take over what clients hold. The last member waits until they have released that, or for --grace, which should be longer than --session.

The page of --http shows the names of locks and clients: keep it off the open network.

Exit status: 0 after a signal; 2 if the command line is wrong; 3 if it could not start, or cannot go on: start it again then.
Also 3 after a signal if --grace was over before clients had released what they hold, which they lose then, or before the record showed that this member has left: the others wait for a lease then.`
}

// Validate refuses what would serve nobody, or everybody.
func (c *Cmd) Validate() error {
	_, known := catalog.Find(c.Algorithm)
	switch {
	case c.Group == nil: // the error is that it is missing
		return nil
	case c.Group.Servers == "" && c.Listen == "":
		return errors.New("give --listen=HOST:PORT, where clients connect")
	case c.Group.URL != "" && c.Meet == "":
		return errors.New("give --meet=HOST:PORT, where the other members connect")
	case anywhere(c.Meet) && c.Advertise == "":
		return errors.New("give --advertise=HOST:PORT, where the other members reach this one: --meet names no host")
	case c.Group.URL == "" && c.Meet+c.Advertise != "":
		return errors.New("--meet and --advertise are for a group at kube://, postgres://, etcd://, redis:// or s3://: members whose record is in a file or at NATS meet there")
	case c.Group.Servers != "" && tool.NATS == nil:
		return fmt.Errorf("--group: %w", tool.ErrNoNATS)
	case c.Session != 0 && (c.Session < 100*time.Millisecond || c.Session > c.Lease):
		return fmt.Errorf("--session=%v: choose 100ms to --lease, which is %v", c.Session, c.Lease)
	case !names.Is(c.Name):
		return fmt.Errorf("--name=%q: choose %s", c.Name, names.Rule)
	case !known:
		return fmt.Errorf("--algorithm=%s: choose one of %s", c.Algorithm, catalog.Names())
	}
	for _, f := range [...][2]string{{"listen", c.Listen}, {"meet", c.Meet}, {"advertise", c.Advertise}} {
		flag, address := f[0], f[1]
		host, _, err := net.SplitHostPort(address)
		local := host == "localhost" || net.ParseIP(host).IsLoopback()
		switch {
		case address == "":
		case err != nil:
			return fmt.Errorf("--%s=%s: give HOST:PORT", flag, address)
		case !local && c.Cert == "" && !c.AllowPlain:
			return fmt.Errorf("--%s=%s is open to other machines: give --cert, --key and --authority, or --allow-plain", flag, address)
		}
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
	p := &permissions{path: c.Allow, certs: c.Listen != "" && c.Cert != "", nats: c.Group.Servers != ""}
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
	switch {
	case c.Group.Servers != "":
		return tool.NATS.Join(ctx, c.Group.Servers, c.Group.Name, c.Security, cfg)
	case c.Group.URL != "":
		return c.meet(ctx, cfg)
	}
	n, err = filenode.Open(ctx, c.Group.Path, cfg)
	return n, func() {}, err
}

// anywhere reports whether an address stands for all interfaces.
func anywhere(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && (host == "" || net.ParseIP(host).IsUnspecified())
}

// meet is join for a group whose record is in a service, and whose members meet over TCP.
func (c *Cmd) meet(ctx context.Context, cfg node.Config) (n *node.Node, leave func(), err error) {
	base, err := c.Group.Base(c.Lease)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("serve: --group: %w", err)
	case base.Group == nil:
		return nil, nil, errors.New("serve: --group: end the URL with /NAME, that of the group")
	}
	security, err := c.Security.Meet(cmp.Or(c.Advertise, c.Meet))
	if err != nil {
		return nil, nil, fmt.Errorf("serve: %w", err)
	}
	link, err := tcplink.New(tcplink.Config{Listen: c.Meet, Advertise: c.Advertise, TLS: security, AllowPlain: security == nil && c.AllowPlain})
	if err != nil {
		return nil, nil, fmt.Errorf("serve: --meet=%s --advertise=%s: %w", c.Meet, c.Advertise, err)
	}
	cfg.Group = base.Name
	if n, err = node.Open(ctx, base.Group, link, cfg); err != nil {
		base.Stop()
	}
	return n, base.Stop, err
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
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute}
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
