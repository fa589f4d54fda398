package node

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/trace"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/session"
)

// A peer is another member as this node sees it: a session over the link.
//
// Two mutexes, taken in the order recv, shard, mu. recv makes a frame's
// messages pass through the machines before the next frame's do; mu guards the
// session, is held only for moments and never while the link sends.
type peer struct {
	node  *Node
	id    dmutex.NodeID
	met   atomic.Bool
	ready atomic.Bool // it has met everybody, and said so
	left  atomic.Bool
	full  atomic.Bool // so much is unacknowledged that new requests must wait
	due   atomic.Bool // there may be something to transmit

	recv    sync.Mutex
	decoder transport.Decoder
	early   [][]byte // what came before this node was ready
	room    int      // that it takes, in bytes
	heardTo uint64   // messages of the peer's present life that were acted on

	mu       sync.Mutex
	session  *session.Session
	spoke    int64  // when its last frame came, at least 1; 0 if none did
	other    uint64 // the digest of a configuration that it has and we have not; 0 if none
	message  []byte // scratch for encoding
	frame    []byte // scratch for transmitting; the flusher's while flushing
	flushing bool
	handling bool  // a frame of the peer is: its acknowledgement goes out with the answers
	relied   bool  // somebody has left it to the one who is handling to transmit
	tries    []try // TryAcquires that wait for this peer's acknowledgement
	heard    []*trial
}

// A try waits until the peer has acknowledged its first mark messages.
type try struct {
	mark  uint64
	trial *trial
}

const (
	// sendBuffer bounds what may wait for one peer's acknowledgement, in
	// bytes. New requests are refused at half of it: the other half is for
	// the answers that we owe, which cannot be refused.
	sendBuffer = 4 << 20

	// minFrame is what [transport.Link] promises: enough for the longest name.
	minFrame = 1024

	// earlyBuffer bounds, in bytes of memory, what one peer may say before this
	// node is ready.
	earlyBuffer = 1 << 20
)

func (n *Node) peer(id dmutex.NodeID) *peer {
	i, found := slices.BinarySearchFunc(n.peers, id, func(p *peer, id dmutex.NodeID) int {
		return cmp.Compare(p.id, id)
	})
	if !found {
		return nil
	}
	return n.peers[i]
}

func (n *Node) openLink() error {
	if l, ok := n.cfg.Link.(transport.BurstLink); ok {
		return l.OpenBursts(n.deliver)
	}
	return n.cfg.Link.Open(func(from dmutex.NodeID, frame []byte) { n.deliver(from, [][]byte{frame}) })
}

// deliver is the event path: frames that arrived together go through session,
// machines and sessions, and what they bring about then to the link, in the
// goroutine that brought them. Whoever else has something to send meanwhile waits
// for one frame at most, and takes along what is there.
func (n *Node) deliver(from dmutex.NodeID, frames [][]byte) {
	p := n.peer(from)
	if p == nil {
		return
	}
	p.recv.Lock()
	defer p.recv.Unlock()
	for _, frame := range frames {
		if n.mute.Load() {
			break
		}
		if p.receive(frame) {
			n.flush()
		}
	}
	n.flush()
	n.pokeDrain()
}

// receive takes in a frame, and reports whether somebody else has met with it in
// transmit and relies on us.
func (p *peer) receive(frame []byte) (relied bool) {
	p.mu.Lock()
	saw := p.look()
	now := p.node.now()
	in, err := p.session.Handle(now, frame)
	p.due.Store(true)
	if err != nil {
		p.refused(err)
		p.mu.Unlock()
		return false
	}
	p.other, p.spoke = 0, max(now, 1)
	p.noticed(saw, in.Event)
	p.gauge()
	p.takeHeard(in.Event == session.Left)
	p.handling = true
	p.mu.Unlock()

	p.act(in) // only another Handle, under recv, would touch the messages

	p.mu.Lock()
	relied = p.relied
	p.handling, p.relied = false, false
	p.mu.Unlock()
	p.due.Store(true)
	return relied
}

// act does what a frame asks for.
func (p *peer) act(in session.Input) {
	switch in.Event {
	case session.Met:
		p.meet()
	case session.Restarted:
		p.heardTo = 0
		if p.node.unmet.Load() == 0 {
			p.node.failClosed(&PeerError{p.id, ErrRestarted})
			return
		}
		// Nobody has acted yet, for we have not said that we are ready.
		p.node.notePeer(peerRestarted, p.id)
		p.left.Store(false)
		if p.ready.Swap(false) {
			p.node.unready.Add(1)
		}
		p.meet() // again, if it had left
	}
	p.hear(in.Messages)
	if in.Event == session.Left {
		p.leave()
	}
	for _, t := range p.heard {
		t.unanswered()
	}
}

// A node acts, that is, handles messages about locks and makes requests, only
// when it is ready: when it has met everybody, and everybody has said the same
// of itself. Whoever has said so takes a peer that restarts for the end of the
// group (see [ErrRestarted]); so from the first act on, every member would
// notice if the one that acted had forgotten it.

// The messages that are about no lock's algorithm. Those that are begin with a
// byte of 0x80 or more.
const (
	saysReady   = 1 // "I have met everybody"
	saysStopped = 2 // then the culprit in 8 bytes, the reason in 1, and the lock's name: "I have stopped it"
	saysLeads   = 3 // then 1 for "I lead" or 0 for "no more", the epoch in 8 bytes, and the election's name
	saysProbe   = 4 // then a deadlock.Chase: see appendProbe
	saysAsk     = 5 // then the name of a lock: "whoever holds it may give it back", see Ask
)

// meet counts the peer as met. The last one lets us say so.
func (p *peer) meet() {
	n := p.node
	if p.met.Swap(true) {
		return
	}
	n.notePeer(peerMet, p.id)
	n.mu.Lock()
	missing := n.unmet.Add(-1)
	n.mu.Unlock()
	if missing > 0 {
		return
	}
	for _, q := range n.peers {
		_ = q.post(func(b []byte) []byte { return append(b, saysReady) }, nil)
	}
	n.mayAct(p)
}

// leftEarly is for a peer that has left and was never ready, so that nobody has
// acted. Either it is to be met again; or we have said that we have met everybody,
// and shall neither act without it nor take its next life for it.
func (n *Node) leftEarly(p *peer) {
	n.mu.Lock()
	again := n.unmet.Load() > 0
	if again {
		p.met.Store(false)
		n.unmet.Add(1)
	}
	n.mu.Unlock()
	if why := (&PeerError{p.id, ErrLeft}); !again && n.bringDown(why) {
		n.note(groupBroken, "", why)
	}
}

// mayAct makes the node ready if nothing is missing, in the course of a frame
// from p.
func (n *Node) mayAct(p *peer) {
	n.mu.Lock()
	if n.unmet.Load() > 0 || n.unready.Load() > 0 || n.isReady() {
		n.mu.Unlock()
		return
	}
	n.readied = n.now()
	close(n.ready)
	n.mu.Unlock()
	n.trace(trace.Event{What: trace.Ready})
	n.note(groupReady, "", nil)
	for _, q := range n.peers {
		if q != p {
			q.recv.Lock()
			q.hearEarly()
			q.recv.Unlock()
		}
	}
}

// hear passes messages to the machines, or keeps them until this node is ready.
func (p *peer) hear(messages [][]byte) {
	for _, m := range messages {
		switch {
		case len(m) == 1 && m[0] == saysReady:
			p.heardTo++
			if !p.ready.Swap(true) {
				p.node.unready.Add(-1)
				p.node.mayAct(p)
			}
		case len(p.early) > 0 || !p.node.isReady(): // in order, whenever it gets ready
			p.early = append(p.early, bytes.Clone(m))
			p.room += len(m) + 32 // each has its place in the list
		default:
			p.heardTo++
			p.handle(m)
		}
	}
	if p.node.isReady() {
		p.hearEarly()
	}
	if p.room > earlyBuffer {
		p.node.failClosed(&PeerError{p.id, ErrOverflow})
	}
}

// hearEarly passes on what was kept, now that this node is ready.
func (p *peer) hearEarly() {
	for _, m := range p.early {
		p.heardTo++
		p.handle(m)
	}
	p.early, p.room = nil, 0
}

// handle takes one message to the lock that it is about.
func (p *peer) handle(message []byte) {
	if len(message) > 10 && len(message) <= 10+transport.MaxName && message[0] == saysStopped {
		culprit := dmutex.NodeID(binary.BigEndian.Uint64(message[1:]))
		why := &PeerError{culprit, ErrLeft}
		if message[9] != reasonLeft {
			why.Err = fmt.Errorf("node %d has stopped this lock: %w", p.id, dmutex.ErrPeer)
		}
		name := message[10:]
		hash := p.node.hash(name)
		p.node.shardOf(hash).stopped(hash, string(name), why)
		return
	}
	if name, t, ok := readTerm(p.id, message); ok {
		if p.left.Load() { // it was early, and is over
			t.leader = dmutex.None
		}
		p.node.terms.hear(name, t)
		return
	}
	if len(message) > 0 && message[0] == saysProbe {
		p.node.probed(p.id, message)
		return
	}
	if len(message) > 0 && message[0] == saysAsk {
		p.node.asked(p.id, message[1:])
		return
	}
	name, m, err := p.decoder.Decode(message)
	if err != nil {
		// Some lock has missed a message, and we do not know which.
		p.node.failClosed(&PeerError{p.id, err})
		return
	}
	m.From, m.To = p.id, p.node.cfg.Self
	hash := p.node.hash(name)
	p.node.shardOf(hash).handle(hash, name, trace.Message{Seq: p.heardTo, Message: m})
}

const (
	reasonLeft  = 1
	reasonFault = 2
)

// tellStopped tells all peers that a lock is stopped here, and will be there.
func (n *Node) tellStopped(lock string, why error) {
	culprit, reason := n.cfg.Self, byte(reasonLeft)
	if p, ok := errors.AsType[*PeerError](why); ok {
		culprit = p.Peer
		if p.Err != ErrLeft {
			reason = reasonFault
		}
	}
	for _, p := range n.peers {
		_ = p.post(func(b []byte) []byte {
			b = binary.BigEndian.AppendUint64(append(b, saysStopped), uint64(culprit))
			return append(append(b, reason), lock...)
		}, nil)
	}
}

// leave notes that the peer has closed its node, behind all that it said.
func (p *peer) leave() {
	p.left.Store(true)
	p.node.notePeer(peerLeft, p.id)
	if !p.ready.Load() {
		p.node.leftEarly(p)
	}
	p.node.terms.left(p.id)
	for i := range p.node.locks {
		p.node.locks[i].strand(p.id)
	}
}

// send queues a message about a lock, and returns its number in the session, 0
// if it was not sent. A TryAcquire that it is part of waits for its
// acknowledgement.
func (p *peer) send(lock string, m dmutex.Message, trying *trial) (seq uint64, err error) {
	err = p.post(func(b []byte) []byte {
		seq = p.session.Sent() + 1
		return transport.AppendMessage(b, lock, m)
	}, trying)
	if err != nil {
		return 0, err
	}
	return seq, nil
}

// post queues what write appends.
func (p *peer) post(write func(b []byte) []byte, trying *trial) error {
	if p.node.mute.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.message = write(p.message[:0])
	err := p.session.Send(p.node.now(), p.message)
	p.due.Store(true)
	p.gauge()
	switch {
	case err == nil:
		if trying != nil {
			trying.unheard++
			p.tries = append(p.tries, try{p.session.Sent(), trying})
		}
		return nil
	case errors.Is(err, session.ErrClosed):
		if p.node.downReason() == ErrClosed && !p.left.Load() {
			return &PeerError{p.node.cfg.Self, ErrLeft} // it is ours that is closed
		}
		return &PeerError{p.id, ErrLeft}
	default:
		overflow := &PeerError{p.id, ErrOverflow}
		p.node.failClosed(overflow)
		return overflow
	}
}

func (p *peer) gauge() { p.full.Store(p.session.Backlog() > sendBuffer/2) }

// transmit sends what is due and returns when something will be due by time
// alone, [math.MaxInt64] for never. If another goroutine is at it already, that
// one sends ours too, in fewer frames, and sees to the deadline; so does the one
// that is handling a frame of this peer.
func (p *peer) transmit() (deadline int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.relied = p.handling
	if p.flushing || p.handling || p.node.mute.Load() {
		return math.MaxInt64
	}
	p.flushing = true
	for {
		saw := p.look()
		p.frame = p.session.Transmit(p.node.now(), p.frame[:0])
		p.noticed(saw, 0)
		if len(p.frame) == 0 {
			break
		}
		p.mu.Unlock()
		// What the link does not take is lost like what the network loses: the
		// session sends it again.
		if err := p.node.cfg.Link.Send(p.id, p.frame); err != nil {
			p.node.traceErr(trace.Unsent, p.id, err)
			if errors.Is(err, transport.ErrClosed) {
				p.node.cut.Store(true)
				p.node.failClosed(fmt.Errorf("the link was closed before the node: %w", transport.ErrClosed))
			}
		}
		p.mu.Lock()
		if p.handling { // since this one was sent: what there is now goes out with the answers
			p.flushing, p.relied = false, true
			return math.MaxInt64
		}
	}
	p.flushing = false
	return p.session.Deadline()
}

// flush transmits what is due to every peer.
func (n *Node) flush() {
	for _, p := range n.peers {
		if p.due.Load() && p.due.Swap(false) {
			n.wakeBefore(p.transmit())
		}
	}
}

// takeHeard moves the tries that the peer has acknowledged to heard, and all if it
// has left. A peer sends its acknowledgement with its answer, so whoever is not
// granted when the present frame has been handled was not answered.
func (p *peer) takeHeard(left bool) {
	p.heard = p.heard[:0]
	if len(p.tries) == 0 {
		return
	}
	acked := p.session.Acked()
	p.tries = slices.DeleteFunc(p.tries, func(t try) bool {
		if t.mark > acked && !left {
			return false
		}
		p.heard = append(p.heard, t.trial)
		return true
	})
}

// close says farewell behind everything that was sent. It does so between two
// frames: the farewell tells the peer which of its messages were answered.
func (p *peer) close() {
	p.recv.Lock()
	defer p.recv.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session.Close(p.node.now())
	p.due.Store(true)
}

// listening reports whether the peer may still lack something that we said.
func (p *peer) listening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.session.Done()
}

// now is the time that sessions go by: nanoseconds since the node opened, on
// the monotonic clock.
func (n *Node) now() int64 { return int64(time.Since(n.birth)) }

// wakeBefore makes keepTime wake at the deadline if it meant to sleep longer.
func (n *Node) wakeBefore(deadline int64) {
	if deadline < n.planned.Load() {
		select {
		case n.wake <- struct{}{}:
		default:
		}
	}
}

// keepTime transmits what becomes due by time alone: acknowledgements and what
// was not acknowledged.
func (n *Node) keepTime() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-n.wake:
		case <-n.stop:
			return
		}
		n.planned.Store(math.MaxInt64) // before the look round: what comes earlier pokes us
		earliest := int64(math.MaxInt64)
		for _, p := range n.peers {
			earliest = min(earliest, p.transmit())
		}
		n.pokeDrain() // an acknowledgement may have been the last thing to say
		if earliest < math.MaxInt64 {
			n.planned.Store(earliest)
			now := n.now()
			timer.Reset(time.Duration(max(earliest, now) - now))
		}
	}
}
