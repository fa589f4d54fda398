// Package memlink is a network inside one process: for tests, and for groups
// whose nodes share a process.
//
// A fault-free network delivers every frame, and keeps the order of frames from one
// node to another, unless more than [Backlog] waits for a node. With faults it
// loses, repeats and delays frames at random. While it runs it can be cut, in one
// direction or both, and healed, and nodes can be paused.
//
// What happens to a frame depends only on the seed, the two nodes, and how many
// frames went from the one to the other before. Time comes from package time,
// so in a bubble of testing/synctest the network runs on the bubble's clock.
//
// It does not model bandwidth. Frames that wait when a link closes are lost, as they
// are when a process dies.
package memlink

import (
	"bytes"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// Config describes the faults of a network. The zero Config is a network without
// faults.
type Config struct {
	Seed      uint64  // of the random numbers
	Loss      float64 // the probability that a frame is lost, 0 to 1
	Duplicate float64 // the probability that a frame arrives twice, 0 to 1

	// MinDelay and MaxDelay bound the delay of a frame, which is drawn for every
	// copy. If they differ, frames overtake each other.
	MinDelay, MaxDelay time.Duration
}

const (
	// MaxFrame is the size of the largest frame in bytes.
	MaxFrame = 64 << 10

	// Backlog is how many bytes may be in flight to one node, counting an extra 64
	// for each frame. Beyond it Send returns [transport.ErrFull].
	Backlog = 4 << 20

	overhead = 64
)

// A Network joins the links that it makes. Its methods are safe for concurrent
// use.
type Network struct {
	config Config
	birth  time.Time

	mu    sync.Mutex
	known map[dmutex.NodeID]bool  // had a link once
	open  map[dmutex.NodeID]*link // has one now
	luck  map[route]*rand.Rand
	cut   map[route]bool
	still map[dmutex.NodeID]bool // paused
	group map[dmutex.NodeID]int  // nodes of different groups do not reach each other
	sent  uint64                 // copies so far, which keeps those due together in order
}

type route struct{ from, to dmutex.NodeID }

// New returns a network without nodes. It refuses with [dmutex.ErrMisuse] a
// probability outside 0 to 1, and delays that are negative or in the wrong order.
func New(c Config) (*Network, error) {
	for _, p := range []struct {
		name  string
		value float64
	}{{"Loss", c.Loss}, {"Duplicate", c.Duplicate}} {
		if !(p.value >= 0 && p.value <= 1) { // also refuses NaN
			return nil, dmutex.Misuse(fmt.Sprintf("memlink: Config.%s is %v: a probability is 0 to 1", p.name, p.value))
		}
	}
	if c.MinDelay < 0 || c.MaxDelay < c.MinDelay {
		return nil, dmutex.Misuse(fmt.Sprintf("memlink: Config.MinDelay %v to MaxDelay %v is not a range of delays", c.MinDelay, c.MaxDelay))
	}
	return &Network{
		config: c,
		birth:  time.Now(),
		known:  make(map[dmutex.NodeID]bool),
		open:   make(map[dmutex.NodeID]*link),
		luck:   make(map[route]*rand.Rand),
		cut:    make(map[route]bool),
		still:  make(map[dmutex.NodeID]bool),
	}, nil
}

// Link returns a new link for a node and makes the node known: from now on
// others may send to it, though nothing arrives until the link is open. A node
// restarts by closing its link and opening another; two links of one node
// cannot be open at once.
func (n *Network) Link(self dmutex.NodeID) transport.Link {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[self] = self != dmutex.None
	return &link{network: n, self: self, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// Partition lets only nodes of the same group reach each other. The nodes that
// are not named are one more group. It replaces an earlier Partition, and does not
// change what Cut did. Frames in flight still arrive.
func (n *Network) Partition(groups ...[]dmutex.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = make(map[dmutex.NodeID]int)
	for i, nodes := range groups {
		for _, id := range nodes {
			n.group[id] = i + 1
		}
	}
}

// Cut loses what one node sends to another from now on, but not what the other node
// sends back.
func (n *Network) Cut(from, to dmutex.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[route{from, to}] = true
}

// Heal undoes Partition and every Cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = nil
	clear(n.cut)
}

// Pause silences a node until Resume, as if its process were stopped: what is sent to
// it and what it sends waits, up to [Backlog] each. The node itself runs on; only its
// network stands still.
func (n *Network) Pause(id dmutex.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.still[id] = true
}

// Resume ends a Pause. What the node has sent meanwhile leaves now, and is lost if
// the receiver is cut off or its backlog is full.
func (n *Network) Resume(id dmutex.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.still, id)
	l := n.open[id]
	if l == nil {
		return
	}
	for _, f := range l.held {
		_ = l.carry(f.to, f.data)
	}
	l.held, l.heldBytes = nil, 0
	l.poke()
}

// A link is one node's end of the network. The network's mutex guards it.
type link struct {
	network *Network
	self    dmutex.NodeID
	opened  bool
	closed  bool
	queue   queue         // to this node
	bytes   int           // of the queue, as Backlog counts
	spare   []*frame      // delivered, to be used again
	wake    chan struct{} // pokes run: the queue has a new head, or the link is closed
	done    chan struct{} // closed when run has ended

	held      []outgoing // while the node is paused
	heldBytes int        // as Backlog counts
}

type outgoing struct {
	to   dmutex.NodeID
	data []byte
}

// A frame is one copy on its way.
type frame struct {
	from dmutex.NodeID
	data []byte
	due  time.Duration // since the network's birth
	turn uint64        // among those due together
}

// MaxFrame implements [transport.Link].
func (l *link) MaxFrame() int { return MaxFrame }

// Open implements [transport.Link].
func (l *link) Open(deliver func(from dmutex.NodeID, frame []byte)) error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case l.self == dmutex.None:
		return dmutex.Misuse("memlink: a link of node 0, which names nobody: number nodes from 1")
	case l.opened:
		return dmutex.Misuse("memlink: the link is open already")
	case n.open[l.self] != nil:
		return dmutex.Misuse("memlink: another link of node " + l.self.String() + " is open: close it first")
	}
	l.opened = true
	n.open[l.self] = l
	go l.run(deliver)
	return nil
}

// Send implements [transport.Link].
func (l *link) Send(to dmutex.NodeID, data []byte) error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.closed || !l.opened:
		return transport.ErrClosed
	case to == l.self || !n.known[to]:
		return transport.ErrUnknownNode
	case len(data) == 0 || len(data) > MaxFrame:
		return transport.ErrFrameSize
	case !n.still[l.self]:
		return l.carry(to, data)
	case l.heldBytes+len(data)+overhead > Backlog:
		return transport.ErrFull
	}
	l.heldBytes += len(data) + overhead
	l.held = append(l.held, outgoing{to, bytes.Clone(data)})
	return nil
}

// carry decides what becomes of a frame.
func (l *link) carry(to dmutex.NodeID, data []byte) error {
	n := l.network
	r := route{l.self, to}
	luck := n.luck[r]
	if luck == nil {
		luck = rand.New(rand.NewPCG(n.config.Seed, uint64(r.from)*0x9e3779b97f4a7c15+uint64(r.to)))
		n.luck[r] = luck
	}
	// Every frame draws as often as any other, so that the fate of one does
	// not hang on what became of those before it.
	lost, twice := luck.Float64() < n.config.Loss, luck.Float64() < n.config.Duplicate
	delays := [2]time.Duration{n.delay(luck), n.delay(luck)}

	dest := n.open[to]
	if lost || dest == nil || n.cut[r] || n.group[r.from] != n.group[r.to] {
		return nil
	}
	if !dest.push(l.self, data, delays[0]) {
		return transport.ErrFull
	}
	if twice {
		dest.push(l.self, data, delays[1])
	}
	return nil
}

func (n *Network) delay(luck *rand.Rand) time.Duration {
	return n.config.MinDelay + time.Duration(luck.Float64()*float64(n.config.MaxDelay-n.config.MinDelay))
}

// now is the time since the network's birth. Without delays it stands still.
func (n *Network) now() time.Duration {
	if n.config.MaxDelay == 0 {
		return 0
	}
	return time.Since(n.birth)
}

// push queues a copy, unless too much is queued already.
func (l *link) push(from dmutex.NodeID, data []byte, delay time.Duration) bool {
	weight := len(data) + overhead
	if l.bytes+weight > Backlog {
		return false
	}
	l.bytes += weight
	var f *frame
	if last := len(l.spare) - 1; last >= 0 {
		f, l.spare = l.spare[last], l.spare[:last]
	} else {
		f = new(frame)
	}
	n := l.network
	n.sent++
	f.from, f.data = from, append(f.data[:0], data...)
	f.due, f.turn = n.now()+delay, n.sent
	heap.Push(&l.queue, f)
	if l.queue[0] == f {
		l.poke()
	}
	return true
}

func (l *link) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run delivers, one frame after the other, until the link is closed.
func (l *link) run(deliver func(from dmutex.NodeID, frame []byte)) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		f, wait, open := l.next()
		switch {
		case !open:
			return
		case f != nil:
			deliver(f.from, f.data)
			l.recycle(f)
			continue
		case wait > 0:
			timer.Reset(wait)
		default:
			timer.Stop()
		}
		select {
		case <-l.wake:
		case <-timer.C:
		}
	}
}

// next takes the frame that is due from the queue. If there is none it says
// how long to wait for one; 0 means until poked.
func (l *link) next() (f *frame, wait time.Duration, open bool) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.closed || len(l.queue) == 0 || l.network.still[l.self] {
		return nil, 0, !l.closed
	}
	if wait := l.queue[0].due - l.network.now(); wait > 0 {
		return nil, wait, true
	}
	f = heap.Pop(&l.queue).(*frame)
	l.bytes -= len(f.data) + overhead
	return f, 0, true
}

// recycle keeps a few delivered frames for use by push.
func (l *link) recycle(f *frame) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if len(l.spare) < 16 {
		l.spare = append(l.spare, f)
	}
}

// Close implements [transport.Link].
func (l *link) Close() error {
	l.network.mu.Lock()
	if l.opened && !l.closed {
		delete(l.network.open, l.self)
		l.poke()
	}
	opened := l.opened
	l.closed, l.queue, l.spare, l.held = true, nil, nil, nil
	l.network.mu.Unlock()
	if opened {
		<-l.done
	}
	return nil
}

// queue is a heap of frames by time due.
type queue []*frame

func (q queue) Len() int      { return len(q) }
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q queue) Less(i, j int) bool {
	return q[i].due < q[j].due || q[i].due == q[j].due && q[i].turn < q[j].turn
}

func (q *queue) Push(f any) { *q = append(*q, f.(*frame)) }

func (q *queue) Pop() any {
	old := *q
	last := len(old) - 1
	f := old[last]
	old[last], *q = nil, old[:last]
	return f
}
