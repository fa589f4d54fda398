// Package channel gives programs that drive machines themselves what the papers assume:
// a reliable channel between each two nodes, which delivers every message once and in
// the order in which it was sent. It works over any [transport.Link], also over one that
// loses, repeats and reorders frames, such as NATS.
//
// The papers also assume that no process fails. When a peer restarts or leaves, the
// machines of its locks have lost messages, and must not go on: [Config.Lost] is called,
// and what happens then is for the program to decide. Package node decides it by views.
package channel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/internal/message"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport"
)

// Config describes one node's ends of the channels.
type Config struct {
	Peers []dmutex.NodeID // the other nodes
	Link  transport.Link  // not yet opened; Close closes it

	// Receive gets each message about a lock, and returns what to send: usually it is
	// the Handle of the lock's machine. Calls are made one at a time. The message is
	// valid during the call only. An error ends the channel to the sender, as in Lost.
	Receive func(lock string, m dmutex.Message) ([]dmutex.Message, error)

	// Lost is called when messages from or to the peer may be lost from now on, and why.
	// The peer is [dmutex.None] if the link was closed. It must not call Do or Close.
	Lost func(peer dmutex.NodeID, why error)
}

// Channels are one node's ends of the channels to its peers. The methods are safe for
// concurrent use.
type Channels struct {
	cfg  Config
	self dmutex.NodeID
	mail *mail.Mail

	mu      sync.Mutex // held during Receive and the input of Do
	decoder message.Decoder
	met     map[dmutex.NodeID]bool
}

// Open opens the link, and the channels of node self. Messages to peers that are not
// there yet wait for them. Each Open must come at a later time of the wall clock
// than the one before it with the same number. Open returns [dmutex.ErrMisuse] for an
// invalid Config, or the error of the link, and then closes the link.
func Open(self dmutex.NodeID, cfg Config) (_ *Channels, err error) {
	defer func() {
		if err != nil && cfg.Link != nil {
			_ = cfg.Link.Close()
		}
	}()
	if cfg.Receive == nil || cfg.Lost == nil {
		return nil, dmutex.Misuse("channel: Config.Receive or Config.Lost is missing")
	}
	c := &Channels{cfg: cfg, self: self, met: make(map[dmutex.NodeID]bool)}
	c.mail, err = mail.New(mail.Config{Peers: cfg.Peers, Life: c.life(uint64(time.Now().UnixNano())), Link: cfg.Link, Handler: handler{c}})
	if err != nil {
		return nil, err
	}
	if err := c.mail.Open(); err != nil {
		return nil, fmt.Errorf("channel: %w", err)
	}
	return c, nil
}

// life returns a number of this run of the process that no other node has.
func (c *Channels) life(now uint64) uint64 {
	nodes := uint64(len(c.cfg.Peers) + 1)
	life := now - now%nodes
	for _, peer := range c.cfg.Peers {
		if peer < c.self {
			life++
		}
	}
	return life
}

// Do calls input, while Receive is not called, and sends what it returns: usually input
// is the Request or Release of the lock's machine. Do returns the error of input, or that of
// a message that cannot be sent because the peer has left or has not acknowledged
// megabytes.
func (c *Channels) Do(lock string, input func() ([]dmutex.Message, error)) error {
	if c.mail == nil {
		return errUnmade
	}
	defer c.mail.Flush()
	c.mu.Lock()
	defer c.mu.Unlock()
	out, err := input()
	return errors.Join(err, c.send(lock, out))
}

func (c *Channels) send(lock string, out []dmutex.Message) error {
	for _, m := range out {
		if _, err := c.mail.Send(m.To, message.Append(nil, lock, m)); err != nil {
			return fmt.Errorf("channel: message to node %v: %w", m.To, err)
		}
	}
	return nil
}

// Close waits until the peers have acknowledged all messages, or ctx ends, and closes
// the channels and the link.
func (c *Channels) Close(ctx context.Context) error {
	if c.mail == nil {
		return errUnmade
	}
	return c.mail.Close(ctx)
}

var errUnmade = dmutex.Misuse("channel: the channels were not opened: use Open")

// A handler takes what the mail brings.
type handler struct{ *Channels }

func (h handler) Met(peer dmutex.NodeID, _ uint64) {
	h.mu.Lock()
	again := h.met[peer]
	h.met[peer] = true
	h.mu.Unlock()
	if again {
		h.cfg.Lost(peer, errors.New("channel: another process of the peer has taken its place"))
	}
}

func (h handler) Message(from dmutex.NodeID, _ uint64, message []byte) {
	h.mu.Lock()
	err := h.receive(from, message)
	h.mu.Unlock()
	if err != nil {
		h.cfg.Lost(from, err)
	}
}

func (h handler) receive(from dmutex.NodeID, message []byte) error {
	lock, m, err := h.decoder.Decode(message)
	if err != nil {
		return fmt.Errorf("channel: message of node %v: %w", from, err)
	}
	name := string(lock)
	m.From, m.To = from, h.self
	out, err := h.cfg.Receive(name, m)
	return errors.Join(err, h.send(name, out))
}

func (h handler) Left(peer dmutex.NodeID) {
	h.cfg.Lost(peer, errors.New("channel: the peer has closed its channels"))
}

func (h handler) Taken(by dmutex.NodeID, _ uint64) {
	h.cfg.Lost(by, fmt.Errorf("channel: the peer has met another process with number %v", h.self))
}

func (h handler) Refused(peer dmutex.NodeID, err error) { // the frame has changed nothing
	if errors.Is(err, stream.ErrBroken) {
		h.cfg.Lost(peer, fmt.Errorf("channel: messages to node %v do not arrive: %w", peer, err))
	}
}

func (h handler) Stranger(dmutex.NodeID) {}

func (h handler) Closed(err error) { h.cfg.Lost(dmutex.None, err) }

func (h handler) Tick(int64) (next int64) { panic("channel: nothing calls Wake") }
