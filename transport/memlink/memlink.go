// Package memlink is a network within one process, for tests and for groups
// whose nodes share a process.
//
// A fault-free network delivers every frame, in order from one node to another, unless
// more than 4 MiB waits for a node. With faults it loses, repeats and delays frames at
// random. A test can cut the network, in one direction or both, heal it, and pause nodes.
//
// What happens to a frame depends only on the seed, the two nodes, and the number of
// frames that went from the one to the other before. In a bubble of testing/synctest the
// network runs on the bubble's clock. It does not model bandwidth. Frames that wait when
// a link closes are lost, as they are when a process dies.
package memlink

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
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
	maxFrame = 64 << 10

	// How many bytes may be in flight to one node, counting overhead for each frame.
	backlog  = 4 << 20
	overhead = 64
)

// A Network joins the links that it makes. The zero Network has no faults. Its methods are safe for concurrent
// use.
//
// Partition, Cut, Pause and Resume identify a node by a number that it has or had. Their
// effect stays with the link when its number changes. A number that no link has had yet
// stands for the link that will have it as its first number.
type Network struct {
	config Config

	mu    sync.Mutex
	links map[dmutex.NodeID]*link // that have the number, or had it last

	// Faults belong to places.
	luck  map[route]*rand.Rand
	cut   map[route]bool
	still map[dmutex.NodeID]bool // paused
	group map[dmutex.NodeID]int  // nodes of different groups do not reach each other
}

type route struct{ from, to dmutex.NodeID } // places

// New returns a network without nodes. It returns [dmutex.ErrMisuse] for a
// probability outside 0 to 1, and for delays that are negative or in the wrong
// order.
func New(c Config) (*Network, error) {
	if !(min(c.Loss, c.Duplicate) >= 0 && max(c.Loss, c.Duplicate) <= 1) { // also refuses NaN
		return nil, dmutex.Misuse(fmt.Sprintf("memlink: Config.Loss %v, Config.Duplicate %v: a probability is 0 to 1", c.Loss, c.Duplicate))
	}
	if c.MinDelay < 0 || c.MaxDelay < c.MinDelay {
		return nil, dmutex.Misuse(fmt.Sprintf("memlink: Config.MinDelay %v to MaxDelay %v is not a range of delays", c.MinDelay, c.MaxDelay))
	}
	return &Network{config: c}, nil
}

// lock locks mu, and makes the maps.
func (n *Network) lock() {
	n.mu.Lock()
	if n.links == nil {
		n.links, n.luck = make(map[dmutex.NodeID]*link), make(map[route]*rand.Rand)
		n.cut, n.still = make(map[route]bool), make(map[dmutex.NodeID]bool)
	}
}

// Link returns a new link for a node and makes the node known: others may send to it,
// though nothing arrives until the link is open. A node restarts by closing its link and
// opening another; two links of one node cannot be open at once. For [dmutex.None] the
// link gets its number and peers from package node.
func (n *Network) Link(self dmutex.NodeID) transport.DynamicLink {
	l := &link{network: n, dynamic: self == dmutex.None, wake: sync.NewCond(&n.mu)}
	n.lock()
	defer n.mu.Unlock()
	l.rename(self)
	return l
}

// placeOf returns the place of the link that has the number or had it last.
func (n *Network) placeOf(id dmutex.NodeID) dmutex.NodeID {
	if l := n.links[id]; l != nil {
		return l.place
	}
	return id
}

// open returns the open link of the number, or nil.
func (n *Network) open(id dmutex.NodeID) *link {
	if l := n.links[id]; l != nil && l.opened && !l.closed && l.self == id {
		return l
	}
	return nil
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
			n.group[n.placeOf(id)] = i + 1
		}
	}
}

// Cut loses what one node sends to another from then on, but not what the other
// node sends back.
func (n *Network) Cut(from, to dmutex.NodeID) {
	n.lock()
	defer n.mu.Unlock()
	n.cut[route{n.placeOf(from), n.placeOf(to)}] = true
}

// Heal undoes Partition and every Cut.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.group = nil
	clear(n.cut)
}

// Pause silences a node until Resume, as if its process were stopped: what is sent to it
// waits, up to 4 MiB, and what it sends is lost. The node itself keeps running; only its
// network stops.
func (n *Network) Pause(id dmutex.NodeID) {
	n.lock()
	defer n.mu.Unlock()
	n.still[n.placeOf(id)] = true
}

// Resume ends a Pause.
func (n *Network) Resume(id dmutex.NodeID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.still, n.placeOf(id))
	for _, l := range n.links {
		l.wake.Signal()
	}
}

// A link is one node's end of the network. The network's mutex guards it.
type link struct {
	network *Network
	dynamic bool
	peers   map[dmutex.NodeID]bool // of a dynamic link
	self    dmutex.NodeID
	place   dmutex.NodeID // the first number; None if there was none yet
	opened  bool
	closed  bool
	queue   []*frame   // to this node, by time due
	head    int        // of the queue; those before it are delivered
	bytes   int        // from the head on, as backlog counts
	wake    *sync.Cond // the queue has a new head, or it is due, the node is resumed, or the link is closed
	running sync.WaitGroup
}

// A frame is one copy on its way.
type frame struct {
	from dmutex.NodeID
	data []byte
	due  time.Time // zero without delay
}

var frames = sync.Pool{New: func() any { return new(frame) }} // delivered, to be used again

// MaxFrame implements [transport.Link].
func (l *link) MaxFrame() int { return maxFrame }

// Trouble implements [transport.Link]. It knows nothing but that the link is closed.
func (l *link) Trouble(dmutex.NodeID) error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.closed {
		return transport.ErrClosed
	}
	return nil
}

// Open implements [transport.Link].
func (l *link) Open(host transport.Host) error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case l.opened:
		return dmutex.Misuse("memlink: the link is open already")
	case host.Deliver == nil:
		return dmutex.Misuse("memlink: Host.Deliver is missing")
	case n.open(l.self) != nil:
		return errTwice(l.self)
	}
	l.opened = true
	l.enlist()
	l.running.Go(func() { l.run(host.Deliver) })
	return nil
}

func errTwice(id dmutex.NodeID) error {
	return dmutex.Misuse("memlink: another link of node " + id.String() + " is open: close it first")
}

// Address implements [transport.DynamicLink]. It is empty.
func (l *link) Address() string { return "" }

// Become implements [transport.DynamicLink]. A number that another open link has is misuse.
func (l *link) Become(self dmutex.NodeID) error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	other := n.open(self)
	switch {
	case l.closed:
		return transport.ErrClosed
	case !l.dynamic:
		return dmutex.Misuse("memlink: the link was made for node " + l.self.String() + ": make it with the number 0")
	case l.opened && other != nil && other != l:
		return errTwice(self)
	}
	l.rename(self)
	return nil
}

// rename gives the link a number, and forgets what it has to do with the former one.
func (l *link) rename(self dmutex.NodeID) {
	l.self, l.peers = self, make(map[dmutex.NodeID]bool)
	l.queue, l.head, l.bytes = nil, 0, 0
	if l.place == dmutex.None {
		l.place = self
	}
	if l.network.open(self) == nil {
		l.enlist()
	}
}

// enlist makes the link the one that has its number.
func (l *link) enlist() {
	if l.self != dmutex.None {
		l.network.links[l.self] = l
	}
}

// SetPeer implements [transport.DynamicLink]. The address must be empty.
func (l *link) SetPeer(id dmutex.NodeID, address string) error {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	switch {
	case l.closed:
		return transport.ErrClosed
	case l.self == dmutex.None || !l.dynamic:
		return dmutex.Misuse("memlink: SetPeer is for a link made for node 0 that has become a number")
	case id == dmutex.None || id == l.self:
		return dmutex.Misuse("memlink: SetPeer with node " + id.String() + ": the node itself and node 0 cannot be peers")
	case address != "":
		return dmutex.Misuse(fmt.Sprintf("memlink: node %d has the address %q: it uses another kind of link", id, address))
	}
	l.peers[id] = true
	return nil
}

// RemovePeer implements [transport.DynamicLink].
func (l *link) RemovePeer(id dmutex.NodeID) {
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	delete(l.peers, id)
}

// Send implements [transport.Link].
func (l *link) Send(to dmutex.NodeID, data []byte) error {
	n := l.network
	n.mu.Lock()
	defer n.mu.Unlock()
	known := l.peers[to]
	if !l.dynamic {
		known = to != l.self && n.links[to] != nil
	}
	switch {
	case l.closed || !l.opened:
		return transport.ErrClosed
	case !known:
		return transport.ErrUnknownNode
	case len(data) == 0 || len(data) > maxFrame:
		return transport.ErrFrameSize
	}
	r := route{l.place, n.placeOf(to)}
	luck := n.luck[r]
	if luck == nil {
		luck = rand.New(rand.NewPCG(n.config.Seed, uint64(r.from)*0x9e3779b97f4a7c15+uint64(r.to)))
		n.luck[r] = luck
	}
	// Every frame draws as often as any other, so that the fate of one does
	// not depend on what happened to earlier ones.
	lost, twice := luck.Float64() < n.config.Loss, luck.Float64() < n.config.Duplicate
	delays := [2]time.Duration{n.delay(luck), n.delay(luck)}

	dest := n.open(to)
	if lost || dest == nil || n.still[r.from] || n.cut[r] || n.group[r.from] != n.group[r.to] {
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

// push queues a copy, unless too much is queued already.
func (l *link) push(from dmutex.NodeID, data []byte, delay time.Duration) bool {
	weight := len(data) + overhead
	if l.bytes+weight > backlog {
		return false
	}
	l.bytes += weight
	f := frames.Get().(*frame)
	f.from, f.data, f.due = from, append(f.data[:0], data...), time.Time{}
	if delay > 0 {
		f.due = time.Now().Add(delay)
		time.AfterFunc(delay, func() {
			l.network.mu.Lock()
			defer l.network.mu.Unlock()
			l.wake.Signal()
		})
	}
	later := func(i int) bool { return l.queue[l.head+i].due.After(f.due) } // those due together stay in order
	i := sort.Search(len(l.queue)-l.head, later)
	l.queue = slices.Insert(l.queue, l.head+i, f)
	if i == 0 {
		l.wake.Signal()
	}
	return true
}

// run delivers, one frame after the other, until the link is closed.
func (l *link) run(deliver func(from dmutex.NodeID, frames [][]byte)) {
	n := l.network
	burst := make([][]byte, 1)
	n.mu.Lock()
	for !l.closed {
		if l.head == len(l.queue) || n.still[l.place] {
			l.wake.Wait()
			continue
		}
		f := l.queue[l.head]
		if !f.due.IsZero() && time.Now().Before(f.due) {
			l.wake.Wait()
			continue
		}
		if l.head++; 2*l.head >= len(l.queue) {
			l.queue, l.head = slices.Delete(l.queue, 0, l.head), 0
		}
		l.bytes -= len(f.data) + overhead
		n.mu.Unlock()
		burst[0] = f.data
		deliver(f.from, burst)
		frames.Put(f)
		n.mu.Lock()
	}
	n.mu.Unlock()
}

// Close implements [transport.Link].
func (l *link) Close() error {
	l.network.mu.Lock()
	l.closed, l.queue = true, nil
	l.wake.Signal()
	l.network.mu.Unlock()
	l.running.Wait()
	return nil
}
