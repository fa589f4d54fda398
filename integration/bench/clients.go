package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	groupclient "github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/filenode"
	"github.com/dmutex/dmutex/node/natsnode"
)

// A served group has three members that serve clients. The first two are processes of their own.
// The third is in this process, beside a client of the first. If the second is the home of a lock,
// the client needs a message to the first and back, and then what the lock takes for a member.
const served = "served"

// lease is the time for which a new group that serves clients grants nothing.
const lease = 3 * time.Second

// openServing opens this member of a served group. Over NATS its clients find it by its name.
func (p part) openServing(e *env) (n *node.Node, address string, err error) {
	var nc *nats.Conn
	var l net.Listener
	name := fmt.Sprint(served, p.Self)
	if p.NATS == "" {
		l, err = net.Listen("tcp", "127.0.0.1:0")
	} else if nc, err = e.connect(); err == nil {
		l, err = natsclient.Listen(nc, name)
	}
	if err != nil {
		return nil, "", err
	}
	cfg := node.Config{Name: name, Lease: lease, Clients: &node.Clients{Listeners: []net.Listener{l}}}
	if p.NATS == "" {
		address = l.Addr().String()
		n, err = filenode.Open(e.ctx, p.Dir, cfg)
	} else {
		address = name
		n, err = natsnode.Open(e.ctx, nc, served, cfg)
	}
	if err != nil {
		return nil, "", err
	}
	return n, address, n.Ready(e.ctx)
}

// openServed opens a served group over TCP or NATS, and puts its clients into e.served.
func (e *env) openServed(overNATS bool) error {
	p := part{Kind: partServing, Dir: filepath.Join(e.dir, served)}
	var cfg groupclient.Config
	if overNATS {
		nc, err := e.connect()
		if err != nil {
			return err
		}
		p.NATS, cfg.Dial = e.natsAt, natsclient.Dialer(nc)
	}
	for p.Self = 1; p.Self < 3; p.Self++ {
		member, err := e.launch(p)
		if err != nil {
			return err
		}
		if p.Self == 1 {
			cfg.Members = []string{member.address}
		}
	}
	n, _, err := p.openServing(e)
	if err != nil {
		return err
	}
	c, err := groupclient.New(cfg)
	if err != nil {
		return err
	}
	e.defers(func() {
		_ = c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = n.Close(ctx)
	})
	near, far, err := lockNames(e.ctx, n)
	if err != nil {
		return err
	}
	if overNATS {
		e.served[clientNATS], e.served[memberNATS] = fixed(c.Mutex(far)), fixed(n.Mutex(far))
	} else {
		e.served[clientTCP], e.served[memberTCP] = fixed(c.Mutex(far)), fixed(n.Mutex(far))
		e.served[clientNear] = fixed(c.Mutex(near))
	}
	return nil
}

// lockNames returns locks whose homes are the first member and the second.
func lockNames(ctx context.Context, n *node.Node) (near, far string, err error) {
	const enough = 64
	for i := range enough {
		held, err := n.Mutex(fmt.Sprint("lock ", i)).Acquire(ctx)
		if err != nil {
			return "", "", err
		}
		defer func() { _ = held.Release() }()
	}
	homes := make(map[dmutex.NodeID]string) // one lock for each member
	for name, status := range n.Locks() {
		homes[status.Home] = name
	}
	for _, peer := range n.Status().Peers {
		switch peer.Name {
		case served + "1":
			near = homes[peer.ID]
		case served + "2":
			far = homes[peer.ID]
		}
	}
	if near == "" || far == "" {
		return "", "", errors.New("a member of the served group is the home of no lock")
	}
	return near, far, nil
}

// fixed is a client that locks m, whatever the name.
func fixed(m lock.Mutex) client {
	return func(ctx context.Context, _ string) (func() error, error) { return acquire(ctx, m) }
}

func servedCell(system string, overNATS bool) cell {
	return cell{system, "alone", clients(func(e *env, _ int) ([]client, error) {
		if e.served[system] == nil {
			if err := e.openServed(overNATS); err != nil {
				return nil, err
			}
		}
		return []client{e.served[system]}, nil
	}, 1, alone)}
}
