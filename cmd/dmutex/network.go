package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// linkFlags choose the network of a demo.
type linkFlags struct {
	Link    string `default:"tcp" enum:"tcp,nats" help:"Network between the processes: tcp (loopback, free ports) or nats (a server is started, unless --nats-url names one)."`
	NatsURL string `name:"nats-url" placeholder:"URL" help:"Use this NATS server; with --link nats."`
}

func (f *linkFlags) validate() error {
	if f.NatsURL != "" && f.Link != "nats" {
		return errors.New("--nats-url needs --link=nats")
	}
	return nil
}

// start starts what the network needs. A server that cannot be reached is told
// here, before any run.
func (f *linkFlags) start() (stop func(), err error) {
	stop = func() {}
	if f.Link != "nats" {
		return stop, nil
	}
	if f.NatsURL == "" {
		if f.NatsURL, stop, err = startNATS(); err != nil {
			return nil, err
		}
	}
	probe, err := connect(&task{Link: f.Link, NatsURL: f.NatsURL, Self: 1, Prefix: natsPrefix()})
	probe.close()
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// A connection is a worker's link, not yet opened, and what the link was made
// from. The zero connection is that of a teller without a lock.
type connection struct {
	link transport.Link
	tcp  *tcplink.Link // the link, if it needs addresses
	nc   *nats.Conn    // what the link borrows
}

// connect makes the link that the task asks for.
func connect(t *task) (c connection, err error) {
	switch t.Link {
	case "tcp":
		if c.tcp, err = tcplink.New(tcplink.Config{Self: t.Self, Listen: "127.0.0.1:0"}); err == nil {
			c.link = c.tcp
		}
	case "nats":
		if c.nc, err = dialNATS(t.NatsURL, nats.Name(fmt.Sprintf("dmutex demo, %s %d", t.Trade, t.Self))); err != nil {
			return c, err
		}
		c.link, err = natslink.New(c.nc, natslink.Config{Self: t.Self, Prefix: t.Prefix})
	default:
		err = fmt.Errorf("there is no link %q", t.Link)
	}
	return c, err
}

// dialNATS connects to one of the servers, separated by commas. Its error tells
// where they are, but no user, password or token that stands before it.
func dialNATS(servers string, options ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(servers, options...)
	if err == nil {
		return nc, nil
	}
	var parse *url.Error
	if errors.As(err, &parse) {
		err = parse.Err // parse tells the whole URL
	}
	list := strings.Split(servers, ",")
	for i, s := range list {
		if scheme, rest, ok := strings.Cut(s, "://"); ok {
			list[i] = scheme + "://" + rest[strings.LastIndex(rest, "@")+1:]
		} else {
			list[i] = s[strings.LastIndex(s, "@")+1:]
		}
	}
	return nil, fmt.Errorf("nats server at %s: %w", strings.Join(list, ","), err)
}

// address is where the link listens, if the others have to know.
func (c connection) address() string {
	if c.tcp == nil {
		return ""
	}
	return c.tcp.Addr().String()
}

// meet takes the addresses of all.
func (c connection) meet(self dmutex.NodeID, peers map[dmutex.NodeID]string) error {
	if c.tcp == nil {
		return nil
	}
	for id, address := range peers {
		if id == self {
			continue
		}
		if err := c.tcp.SetPeer(id, address); err != nil {
			return err
		}
	}
	return nil
}

// close ends the link, which may have ended with its node, and what it borrows.
func (c connection) close() {
	if c.link != nil {
		_ = c.link.Close()
	}
	if c.nc != nil {
		c.nc.Close()
	}
}

// natsPrefix draws a subject prefix that no other run on the same server has.
func natsPrefix() string { return "dmutex-demo." + rand.Text() }

// startNATS runs a nats-server in this process, on a free port of loopback.
func startNATS() (url string, stop func(), err error) {
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
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
