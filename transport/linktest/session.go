package linktest

import (
	"encoding/binary"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/session"
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

// A conference is a test of sessions over a network.
type conference struct {
	b     *bench
	birth time.Time
	stop  chan struct{} // ends the timekeepers
	half  chan struct{} // closed when half of the messages have arrived
	harm  chan struct{} // closed when midway has returned
	full  chan struct{} // closed when all have arrived

	mu   sync.Mutex
	left int // messages that have not arrived
}

// A speaker is a node with a session to each of the others.
type speaker struct {
	c    *conference
	self dmutex.NodeID
	link transport.Link
	wake chan struct{} // pokes the timekeeper: a deadline may be earlier

	mu       sync.Mutex
	sessions map[dmutex.NodeID]*session.Session
	said     map[dmutex.NodeID]uint64 // messages to a peer
	heard    map[dmutex.NodeID]uint64 // messages of a peer
	frame    []byte
}

const (
	speakers = 3
	speeches = 500 // from each to each
	lead     = 8   // so many at first; then one for each that is heard
)

func talk(b *bench, faults Faults, midway func()) {
	c := &conference{
		b:     b,
		birth: time.Now(),
		stop:  make(chan struct{}),
		half:  make(chan struct{}),
		harm:  make(chan struct{}),
		full:  make(chan struct{}),
		left:  speakers * (speakers - 1) * speeches,
	}
	nodes := make([]*speaker, speakers)
	for i := range nodes {
		id := dmutex.NodeID(i + 1)
		nodes[i] = &speaker{
			c:        c,
			self:     id,
			link:     Faulty(b, b.make(id), faults),
			wake:     make(chan struct{}, 1),
			sessions: make(map[dmutex.NodeID]*session.Session),
			said:     make(map[dmutex.NodeID]uint64),
			heard:    make(map[dmutex.NodeID]uint64),
		}
	}
	var keeping sync.WaitGroup
	b.Cleanup(func() { // before the links are closed
		close(c.stop)
		keeping.Wait()
	})
	for _, n := range nodes {
		n.prepare()
		keeping.Go(n.keepTime)
		require.NoError(b, n.link.Open(n.deliver))
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

// report logs what the sessions had to repair.
func (n *speaker) report() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for peer, s := range n.sessions {
		stats := s.Stats()
		n.c.b.Logf("node %d with node %d: sent %d frames again, received %d again and %d too early",
			n.self, peer, stats.Resent, stats.Repeated, stats.Early)
	}
}

// prepare makes the sessions and sends the first messages to every peer.
func (n *speaker) prepare() {
	for peer := dmutex.NodeID(1); peer <= speakers; peer++ {
		if peer == n.self {
			continue
		}
		// Small frames, so that there are many.
		s, err := session.New(session.Config{Life: uint64(n.self), MaxFrame: 700})
		require.NoError(n.c.b, err)
		n.sessions[peer] = s
		for range lead {
			n.speak(peer)
		}
	}
}

// speak says the next message to a peer, unless all was said. It begins with
// its number; its size is anything up to 500 bytes more.
func (n *speaker) speak(peer dmutex.NodeID) {
	if n.said[peer] == speeches {
		return
	}
	i := n.said[peer]
	n.said[peer]++
	message := binary.BigEndian.AppendUint64(nil, i)
	message = append(message, make([]byte, i*i%500)...)
	if err := n.sessions[peer].Send(n.c.now(), message); err != nil {
		n.c.b.Errorf("node %d: Send to node %d: %v", n.self, peer, err)
	}
}

func (n *speaker) deliver(from dmutex.NodeID, frame []byte) {
	n.mu.Lock()
	s := n.sessions[from]
	in, err := s.Handle(n.c.now(), frame)
	if err != nil || in.Event > session.Met {
		n.c.b.Errorf("node %d: session with node %d: %v, %v", n.self, from, in.Event, err)
	}
	for _, m := range in.Messages {
		if i := binary.BigEndian.Uint64(m); i != n.heard[from] {
			n.c.b.Errorf("node %d: message %d of node %d comes when %d is due", n.self, i, from, n.heard[from])
		}
		n.heard[from]++
		n.speak(from)
	}
	count := len(in.Messages)
	n.transmit(from)
	n.mu.Unlock()

	n.poke()
	n.c.count(count)
}

func (n *speaker) poke() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// transmit sends what is due to a peer.
func (n *speaker) transmit(peer dmutex.NodeID) {
	s := n.sessions[peer]
	for {
		n.frame = s.Transmit(n.c.now(), n.frame[:0])
		if len(n.frame) == 0 {
			return
		}
		_ = n.link.Send(peer, n.frame) // the session repairs what is refused, too
	}
}

// keepTime transmits what becomes due by time alone.
func (n *speaker) keepTime() {
	timer := time.AfterFunc(time.Hour, n.poke)
	defer timer.Stop()
	for {
		earliest := int64(math.MaxInt64)
		n.mu.Lock()
		for peer, s := range n.sessions {
			n.transmit(peer)
			earliest = min(earliest, s.Deadline())
		}
		n.mu.Unlock()
		if wait := earliest - n.c.now(); wait > 0 {
			timer.Reset(time.Duration(wait))
		} else {
			n.poke()
		}
		select {
		case <-n.wake:
		case <-n.c.stop:
			return
		}
	}
}

func (c *conference) now() int64 { return int64(time.Since(c.birth)) }

func (c *conference) count(arrived int) {
	c.mu.Lock()
	before := c.left
	c.left -= arrived
	after := c.left
	c.mu.Unlock()
	const half = speakers * (speakers - 1) * speeches / 2
	if before > half && after <= half {
		close(c.half)
		<-c.harm
	}
	if before > 0 && after <= 0 {
		close(c.full)
	}
}
