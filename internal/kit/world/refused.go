package world

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// misconfigures lets a process begin with settings that nobody can use. It is refused, at once and without a trace.
func (w *World) misconfigures() {
	w.count("a process is misconfigured")
	p := w.process("misconfigured")
	link := func(c tcplink.Config) func() error {
		return func() error {
			_, err := tcplink.New(c)
			return err
		}
	}
	member := func(c node.Config) func() error {
		return func() error {
			_, err := node.Open(context.Background(), p.store(w.group), w.net.Link(dmutex.None), c)
			return err
		}
	}
	strict := func(c node.Config, all ...dmutex.NodeID) func() error {
		return func() error {
			_, err := node.OpenStrict(context.Background(), 1, all, w.net.Link(1<<20), c)
			return err
		}
	}
	user := func(c client.Config) func() error {
		return func() error {
			_, err := client.New(c)
			return err
		}
	}
	record := func(name string, lease time.Duration) func() error {
		return func() error {
			_, err := storelock.New(p.store(w.group), name, lease)
			return err
		}
	}
	const here, anywhere = "127.0.0.1:7000", "0.0.0.0:7000"
	plain, rule := new(tls.Config), func(*x509.Certificate) (dmutex.NodeID, error) { return dmutex.None, nil }
	peers := map[dmutex.NodeID]string{2: anywhere}
	all := []func() error{
		link(tcplink.Config{}), link(tcplink.Config{Listen: anywhere}), link(tcplink.Config{Listen: here, TLS: plain}),
		link(tcplink.Config{Listen: here, TLS: plain, AllowPlain: true}), link(tcplink.Config{Listen: here, Self: 1, NodeOf: rule}),
		link(tcplink.Config{Listen: anywhere, AllowPlain: true}), link(tcplink.Config{Listen: here, Advertise: anywhere}),
		link(tcplink.Config{Listen: here, Self: 1, Advertise: here}), link(tcplink.Config{Listen: here, Peers: peers}),
		link(tcplink.Config{Listen: here, Self: 1, Peers: peers}), link(tcplink.Config{Listen: "here"}),
		member(node.Config{Name: "\n"}), member(node.Config{Name: p.who, Fence: 1 << 63}), member(node.Config{Name: p.who, Deadlock: -1}),
		member(node.Config{Name: p.who, Lease: 1}), member(node.Config{Name: p.who, Clients: new(node.Clients)}),
		strict(node.Config{Lease: leaseOf}, 1, 2), strict(node.Config{Clients: new(node.Clients)}, 1, 2), strict(node.Config{Name: p.who}, 2, 3),
		user(client.Config{}), user(client.Config{Members: []string{here}, Name: "\n"}), user(client.Config{Members: []string{"here"}, Name: p.who}),
		record("", leaseOf), record("x", 1),
	}
	if w.tcp { // another program has the port
		at := p.at.ip + ":7000"
		other, err := p.socket.Listen(context.Background(), at)
		require.NoError(w.t, err)
		defer other.Close()
		all = append(all, link(tcplink.Config{Listen: at, AllowPlain: true}))
	}
	i := w.Luck.IntN(len(all))
	p.open(func() {
		if err := all[i](); err == nil {
			w.Wrong("a process begins with what it cannot use: mistake %d", i)
		}
	})
	p.kill()
}
