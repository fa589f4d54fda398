// Command machines drives two machines of package ricart over NATS by itself, without
// package node: it takes a lock at one node after the other. It starts a NATS server of
// its own. What happens when a node crashes is not its subject: it gives up.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/channel"
	"github.com/dmutex/dmutex/transport/natslink"
)

// A site is one node: the machine of one lock, and the channels to the other node.
type site struct {
	machine  dmutex.Machine
	channels *channel.Channels
	granted  chan uint64 // the fence of a grant
}

func newSite(url string, self, peer dmutex.NodeID) *site {
	conn, err := nats.Connect(url)
	check(err)
	link, err := natslink.New(conn, natslink.Config{Prefix: "machines", Self: self})
	check(err)
	s := &site{granted: make(chan uint64, 1)}
	s.machine, err = ricart.New(dmutex.Start{Self: self, Members: []dmutex.NodeID{self, peer}})
	check(err)
	s.channels, err = channel.Open(self, channel.Config{
		Peers: []dmutex.NodeID{peer}, Link: link, Receive: s.receive,
		Lost: func(peer dmutex.NodeID, why error) { log.Print("node ", peer, ": ", why) },
	})
	check(err)
	return s
}

// receive gives a message to the machine. A grant is a phase of the machine, not a
// message, so it looks at the phase.
func (s *site) receive(_ string, m dmutex.Message) ([]dmutex.Message, error) {
	before := s.machine.Phase()
	out, err := s.machine.Handle(m)
	if before == dmutex.Waiting && s.machine.Phase() == dmutex.Held {
		s.granted <- s.machine.Fence()
	}
	return out, err
}

func main() {
	nats, err := startServer()
	check(err)
	defer nats.WaitForShutdown()
	defer nats.Shutdown()

	sites := []*site{newSite(nats.ClientURL(), 1, 2), newSite(nats.ClientURL(), 2, 1)}
	for i, s := range append(sites, sites...) {
		check(s.channels.Do("orders/42", s.machine.Request))
		fmt.Printf("node %d holds orders/42 with fence %d\n", i%2+1, <-s.granted)
		check(s.channels.Do("orders/42", s.machine.Release))
	}
	var closing sync.WaitGroup
	for _, s := range sites { // together: each waits until the other has its last message
		closing.Go(func() { check(s.channels.Close(context.Background())) })
	}
	closing.Wait()
}

func startServer() (*server.Server, error) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true})
	if err != nil {
		return nil, err
	}
	s.Start()
	if !s.ReadyForConnections(time.Minute) {
		return nil, errors.New("the NATS server does not start")
	}
	return s, nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
