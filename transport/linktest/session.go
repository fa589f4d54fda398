package linktest

import (
	"context"
	"encoding/binary"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/mail"
	"github.com/dmutex/dmutex/transport"
)

// TestSession lets three nodes send each other thousands of numbered messages at
// once, through sessions over links with the faults. Each message must arrive once
// and in order. If midway is not nil, it is called when half of them have arrived, to
// disturb the network in its own way. One of the nodes receives nothing until midway
// returns, so the disturbance happens in the middle of the traffic.
func TestSession(t *testing.T, links Links, faults Faults, midway func()) {
	links.inBench(t, func(b *bench) { talk(b, faults, midway) })
}

// A group is some speakers, and how far they are.
type group struct {
	b    *bench
	half chan struct{} // closed when half of the messages have arrived
	harm chan struct{} // closed when midway has returned
	full chan struct{} // closed when all have arrived

	mu   sync.Mutex
	left int // messages that have not arrived
}

// A speaker is a node that talks to the others.
type speaker struct {
	c    *group
	self dmutex.NodeID
	mail *mail.Mail

	mu    sync.Mutex
	said  [speakers + 1]uint64 // messages to a peer
	heard [speakers + 1]uint64 // messages of a peer
}

// A narrow link has small frames, so that there are many.
type narrow struct{ transport.Link }

func (narrow) MaxFrame() int { return 1024 }

const (
	speakers = 3
	speeches = 500 // from each to each
	lead     = 8   // so many at first; then one for each that is heard
)

func talk(b *bench, faults Faults, midway func()) {
	c := &group{
		b:    b,
		half: make(chan struct{}),
		harm: make(chan struct{}),
		full: make(chan struct{}),
		left: speakers * (speakers - 1) * speeches,
	}
	nodes := make([]*speaker, speakers)
	for i := range nodes {
		n := &speaker{c: c, self: dmutex.NodeID(i + 1)}
		nodes[i] = n
		var err error
		n.mail, err = mail.New(mail.Config{
			Peers: n.peers(), Life: uint64(n.self), Link: narrow{disturb(b, b.make(n.self), faults)}, Handler: n,
		})
		require.NoError(b, err)
	}
	b.Cleanup(func() { // before the links are closed
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, n := range nodes {
			_ = n.mail.Close(ctx) // nobody waits for the others
		}
	})
	for _, n := range nodes {
		for _, peer := range n.peers() {
			for range lead {
				n.speak(peer)
			}
		}
		require.NoError(b, n.mail.Open())
	}
	await(b, c.half, "half of the messages")
	func() {
		defer close(c.harm) // though midway may end the test
		if midway != nil {
			midway()
		}
	}()
	await(b, c.full, "the rest of the messages")
	for _, n := range nodes {
		n.report()
	}
}

func (n *speaker) peers() (all []dmutex.NodeID) {
	for peer := dmutex.NodeID(1); peer <= speakers; peer++ {
		if peer != n.self {
			all = append(all, peer)
		}
	}
	return all
}

// report logs what the sessions had to repair.
func (n *speaker) report() {
	for _, peer := range n.peers() {
		status := n.mail.Status(peer)
		n.c.b.Logf("node %d with node %d: sent %d frames again, received %d again", n.self, peer, status.Resent, status.Repeated)
	}
}

// speak says the next message to a peer, unless all was said. It begins with
// its number; its size is anything up to 500 bytes more.
func (n *speaker) speak(peer dmutex.NodeID) {
	i := n.said[peer]
	if i == speeches {
		return
	}
	n.said[peer]++
	if _, err := n.mail.Send(peer, func(b []byte) []byte {
		return append(binary.BigEndian.AppendUint64(b, i), make([]byte, i*i%500)...)
	}); err != nil {
		n.c.b.Errorf("node %d: Send to node %d: %v", n.self, peer, err)
	}
}

func (n *speaker) Message(from dmutex.NodeID, _ uint64, message []byte) {
	n.mu.Lock()
	if i := binary.BigEndian.Uint64(message); i != n.heard[from] {
		n.c.b.Errorf("node %d: message %d of node %d comes when %d is due", n.self, i, from, n.heard[from])
	}
	n.heard[from]++
	n.speak(from)
	n.mu.Unlock()
	n.c.count()
}

func (n *speaker) Met(peer dmutex.NodeID, life uint64) {
	if life != uint64(peer) {
		n.wrong(peer, "met a life that never began")
	}
}

func (n *speaker) Left(peer dmutex.NodeID) {
	if !n.c.over() {
		n.wrong(peer, "it has left")
	}
}

func (n *speaker) Taken(by dmutex.NodeID, _ uint64)      { n.wrong(by, "another life was met") }
func (n *speaker) Refused(peer dmutex.NodeID, err error) { n.wrong(peer, err) }
func (n *speaker) Stranger(from dmutex.NodeID)           { n.wrong(from, "it is a stranger") }
func (n *speaker) Closed(err error)                      { n.wrong(n.self, err) }
func (n *speaker) Tick(int64) (next int64)               { panic("nobody has called Wake") }

func (n *speaker) wrong(peer dmutex.NodeID, what any) {
	n.c.b.Errorf("node %d: session with node %d: %v", n.self, peer, what)
}

func (c *group) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left == 0
}

// count counts a message that has arrived.
func (c *group) count() {
	c.mu.Lock()
	c.left--
	left := c.left
	c.mu.Unlock()
	switch left {
	case speakers * (speakers - 1) * speeches / 2:
		close(c.half)
		<-c.harm
	case 0:
		close(c.full)
	}
}
