package mail_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/mail"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A site drives one lock at one node by itself, without package node. It counts on
// every peer to stay: what happens when one leaves or restarts is for a real
// program to decide.
type site struct {
	self    dmutex.NodeID
	mail    *mail.Mail
	granted chan uint64 // the fence of a grant

	mu      sync.Mutex // guards what follows
	machine dmutex.Machine
	decoder transport.Decoder
}

// step gives the machine an input and sends what comes of it.
func (s *site) step(input func() ([]dmutex.Message, error)) {
	before := s.machine.Phase()
	out, err := input()
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range out {
		if _, err := s.mail.Send(m.To, func(b []byte) []byte { return transport.AppendMessage(b, "x", m) }); err != nil {
			log.Fatal(err)
		}
	}
	if before != dmutex.Held && s.machine.Phase() == dmutex.Held {
		s.granted <- s.machine.Fence()
	}
}

func (s *site) Message(from dmutex.NodeID, _ uint64, message []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, m, err := s.decoder.Decode(message)
	if err != nil {
		log.Fatal(err)
	}
	m.From, m.To = from, s.self
	s.step(func() ([]dmutex.Message, error) { return s.machine.Handle(m) })
}

// do is a step that does not begin with a message.
func (s *site) do(input func() ([]dmutex.Message, error)) {
	s.mu.Lock()
	s.step(input)
	s.mu.Unlock()
	s.mail.Flush()
}

func (s *site) Met(dmutex.NodeID, uint64) {}
func (s *site) Left(dmutex.NodeID)        {}
func (s *site) Taken(by dmutex.NodeID, _ uint64) {
	log.Fatal("another process has our number, says ", by)
}
func (s *site) Refused(_ dmutex.NodeID, err error) { log.Print(err) }
func (s *site) Stranger(dmutex.NodeID)             {}
func (s *site) Closed(err error)                   { log.Fatal(err) }
func (s *site) Tick(int64) (next int64)            { panic("nobody has called Wake") }

// Three machines of package ricart take turns, over a network that loses every
// tenth frame.
func Example() {
	network, err := memlink.New(memlink.Config{Loss: 0.1})
	if err != nil {
		log.Fatal(err)
	}
	members := []dmutex.NodeID{1, 2, 3}
	var sites []*site
	for i, self := range members {
		s := &site{self: self, granted: make(chan uint64, 1)}
		if s.machine, err = ricart.New(dmutex.Start{Self: self, Members: members}); err != nil {
			log.Fatal(err)
		}
		peers := append(members[:i:i], members[i+1:]...)
		s.mail, err = mail.New(mail.Config{Peers: peers, Life: 100 + uint64(self), Link: network.Link(self), Handler: s})
		if err != nil {
			log.Fatal(err)
		}
		sites = append(sites, s)
	}
	for _, s := range sites {
		if err := s.mail.Open(); err != nil {
			log.Fatal(err)
		}
	}
	for _, s := range sites {
		s.do(s.machine.Request)
		fmt.Println("node", s.self, "holds x with fence", <-s.granted)
		s.do(s.machine.Release)
	}
	var closing sync.WaitGroup
	for _, s := range sites { // together: each waits until the others have its farewell
		closing.Go(func() {
			if err := s.mail.Close(context.Background()); err != nil {
				log.Print(err)
			}
		})
	}
	closing.Wait()
	// Output:
	// node 1 holds x with fence 1
	// node 2 holds x with fence 2
	// node 3 holds x with fence 3
}
