package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// A connection is a teller's link before it is opened.
type connection struct {
	link    transport.Link
	address string // where the link listens, if the others have to know

	// meet takes the addresses of the others; close ends what the link has
	// borrowed, after the link.
	meet  func(peers map[dmutex.NodeID]string) error
	close func()
}

// connect makes the link that the task asks for.
func connect(t *task) (*connection, error) {
	if t.Link == "nats" {
		return connectNATS(t)
	}
	return connectTCP(t)
}

func connectTCP(t *task) (*connection, error) {
	link, err := tcplink.New(tcplink.Config{Self: t.Self, Listen: "127.0.0.1:0"})
	if err != nil {
		return nil, err
	}
	meet := func(peers map[dmutex.NodeID]string) error {
		var errs error
		for id, address := range peers {
			if id != t.Self {
				errs = errors.Join(errs, link.SetPeer(id, address))
			}
		}
		return errs
	}
	return &connection{link, link.Addr().String(), meet, func() {}}, nil
}

func connectNATS(t *task) (*connection, error) {
	nc, err := nats.Connect(t.NatsURL, nats.Name(fmt.Sprintf("dmutex demo, teller %d", t.Self)))
	if err != nil {
		return nil, fmt.Errorf("nats server at %s: %w", t.NatsURL, err)
	}
	link, err := natslink.New(nc, natslink.Config{Self: t.Self, Prefix: t.Prefix})
	if err != nil {
		nc.Close()
		return nil, err
	}
	return &connection{link, "", func(map[dmutex.NodeID]string) error { return nil }, nc.Close}, nil
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
