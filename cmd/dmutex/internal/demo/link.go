package demo

import (
	"crypto/rand"
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// connect makes the link that a task asks for, not yet opened.
func connect(t *task) (link transport.DynamicLink, stop func(), err error) {
	self := t.Self
	if t.Lease != 0 {
		self = dmutex.None
	}
	if t.Link == "nats" {
		return tool.NATS.Connect(t.NatsURL, fmt.Sprintf("dmutex demo, %s %d", t.Trade, t.Self), self, t.Prefix)
	}
	tcp, err := tcplink.New(tcplink.Config{Self: self, Listen: t.Listen})
	return tcp, func() { _ = tcp.Close() }, err // the node may have closed it
}

// address is where a link listens, if the other nodes have to know.
func address(l transport.Link) string {
	if tcp, ok := l.(*tcplink.Link); ok {
		return tcp.Addr().String()
	}
	return ""
}

// meet tells a link the addresses of the other nodes, unless the record of the members
// will.
func meet(l transport.Link, t *task, peers map[dmutex.NodeID]string) error {
	tcp, ok := l.(*tcplink.Link)
	if !ok || t.Lease != 0 {
		return nil
	}
	for id, address := range peers {
		if id == t.Self {
			continue
		}
		if err := tcp.SetPeer(id, address); err != nil {
			return err
		}
	}
	return nil
}

// natsPrefix draws a subject prefix that no other run on the same server has.
func natsPrefix() string { return "dmutex-demo." + rand.Text() }
