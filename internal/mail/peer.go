package mail

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/stream"
	"github.com/dmutex/dmutex/transport"
)

// A peer is the stream with another member over the link. Of its mutexes, recv comes first:
// it takes the messages of one frame through the Handler before those of the next. mu guards
// the stream, for moments, and never while the link sends or the Handler runs.
type peer struct {
	mail *Mail
	id   dmutex.NodeID
	life uint64      // the only one of it that is met; 0 for any
	due  atomic.Bool // there may be something to transmit

	backlog atomic.Int64 // of the stream

	recv sync.Mutex
	mu   sync.Mutex

	stream   *stream.Stream
	gone     bool              // no longer a peer: it transmits and receives nothing
	now      int64             // what it was told last; it must not go back
	acked    uint64            // of our messages; what came with that is handled
	receipts []receipt         // ascending
	spoke    int64             // when its last frame came, at least 1; 0 if none did
	other    stream.GroupError // how it was last heard to differ; zero if it does not
	frame    []byte            // scratch for transmitting; the sender's while flushing
	flushing bool
	handler  handler
}

// A handler says whether a goroutine handles a frame of the peer, under recv. Together the flags say who
// transmits to the peer:
//
//	gone            nobody
//	flushing        the goroutine that has set it, until nothing more is due
//	handler idle    any goroutine that calls transmit
//	handler busy    nobody yet: acknowledgements go out with the answers
//	handler relied  the handler when it is done: another goroutine has called transmit meanwhile
//	due             the next Flush calls transmit
type handler uint8

const (
	idle handler = iota // no frame is being handled
	busy
	relied
)

// deliver is the event path: frames that arrived together go through stream and
// Handler, and what they bring about goes to the link, in one goroutine.
func (m *Mail) deliver(from dmutex.NodeID, frames [][]byte) {
	p := m.peer(from)
	if p == nil {
		for range max(len(frames), 1) {
			m.cfg.Handler.Stranger(from)
		}
		m.Flush()
		return
	}
	p.recv.Lock()
	defer p.recv.Unlock()
	now := m.now()
	for _, frame := range frames {
		if p.receive(now, frame) {
			m.wakeBefore(p.transmit(now))
		}
	}
	m.flush(now)
}

// receive takes in a frame. It reports whether another goroutine has left it to this one to transmit.
func (p *peer) receive(now int64, frame []byte) (left bool) {
	p.mu.Lock()
	switch {
	case p.gone:
		p.mu.Unlock()
		p.mail.cfg.Handler.Stranger(p.id)
		return false
	case len(frame) == 0: // the link did not know yet that it is a peer
		p.mu.Unlock()
		return false
	}
	p.now = max(p.now, now)
	in, err := p.stream.Handle(p.now, frame)
	p.due.Store(true)
	if err != nil {
		other, ok := err.(stream.GroupError)
		again := ok && other == p.other
		if ok {
			p.other = other
		}
		p.mu.Unlock()
		if !again {
			p.mail.cfg.Handler.Refused(p.id, err)
		}
		return false
	}
	p.other = stream.GroupError{}
	if !p.stream.Broken() { // its greetings are no sign that it can be talked to
		p.spoke = max(now, 1)
	}
	if in.Met != 0 {
		p.acked, p.receipts = 0, nil
	}
	p.backlog.Store(int64(p.stream.Backlog()))
	acked := p.stream.Acked()
	p.handler = busy
	p.mu.Unlock()

	p.handle(in) // only another Handle, under recv, would touch the messages

	p.mu.Lock()
	p.acked = acked
	for len(p.receipts) > 0 && p.receipts[0].seq <= acked {
		close(p.receipts[0].given)
		p.receipts = p.receipts[1:]
	}
	left = p.handler == relied
	p.handler = idle
	p.mu.Unlock()
	return left
}

// taken takes the link's word that a peer is connected with another life of this node.
func (m *Mail) taken(by dmutex.NodeID, life uint64) {
	p := m.peer(by)
	if p == nil {
		return
	}
	p.recv.Lock()
	defer p.recv.Unlock()
	p.mu.Lock()
	p.now = max(p.now, m.now())
	believed := !p.gone && p.stream.Refused(p.now, life)
	p.mu.Unlock()
	if believed {
		m.cfg.Handler.Taken(by, life)
		m.Flush()
	}
}

// handle tells the Handler what a frame brought.
func (p *peer) handle(in stream.Input) {
	h := p.mail.cfg.Handler
	if in.Met != 0 {
		h.Met(p.id, in.Met)
	}
	if in.Taken != 0 {
		h.Taken(p.id, in.Taken)
	}
	for i, message := range in.Messages {
		h.Message(p.id, in.Seq+uint64(i), message)
	}
	if in.Left {
		h.Left(p.id)
	}
}

// transmit sends what is due and returns when something will be due by time alone. If another
// goroutine transmits already, or handles a frame of this peer, transmit leaves both to it.
func (p *peer) transmit(now int64) (deadline int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flushing {
		return due.Never
	}
	p.flushing = true
	p.now = max(p.now, now)
	deadline = due.Never
	for p.mail.link.Load() == open && !p.gone {
		if p.handler != idle { // perhaps since a frame was sent: what there is goes out with the answers
			p.handler = relied
			break
		}
		p.frame = p.stream.Transmit(p.now, p.frame[:0])
		if len(p.frame) == 0 {
			deadline = p.stream.Deadline()
			break
		}
		p.mu.Unlock()
		p.carry(p.frame)
		p.mu.Lock()
	}
	p.flushing = false
	poke(p.mail.drain)
	return deadline
}

// carry gives a frame to the link. If the link does not take it, the stream sends it again.
func (p *peer) carry(frame []byte) {
	m := p.mail
	err := m.cfg.Link.Send(p.id, frame)
	if errors.Is(err, transport.ErrClosed) && m.link.CompareAndSwap(open, shut) {
		m.cfg.Handler.Closed(fmt.Errorf("mail: the link was closed before the mail: %w", err))
	}
}

// rename replaces the stream by that of another life. The old one says farewell
// once. Meanwhile other goroutines that have messages leave them to this one.
func (p *peer) rename(s *stream.Stream) {
	p.recv.Lock()
	defer p.recv.Unlock()
	p.mu.Lock()
	if p.gone {
		p.mu.Unlock()
		return
	}
	old := p.stream
	p.stream, p.acked, p.receipts = s, 0, nil
	p.backlog.Store(0)
	p.handler = busy
	p.mu.Unlock()
	if old.Peer() != 0 {
		now := p.mail.now()
		old.Close()
		for p.mail.link.Load() == open {
			frame := old.Transmit(now, nil)
			if len(frame) == 0 {
				break
			}
			p.carry(frame)
		}
	}
	p.mu.Lock()
	p.handler = idle
	p.mu.Unlock()
	p.due.Store(true)
}

// notice tells the stream how high lives may be, and perhaps makes the next transmit ask
// whether the peer is there.
func (p *peer) notice(maxLife uint64, ask bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stream.SetMaxLife(maxLife); ask {
		p.stream.Ask()
	}
}

// close says farewell behind everything that was sent. It does so between two
// frames: the farewell tells the peer which of its messages were answered.
func (p *peer) close() {
	p.recv.Lock()
	defer p.recv.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stream.Close()
	p.due.Store(true)
}

// listening reports whether the peer may still lack something that we sent.
func (p *peer) listening() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.flushing || !p.stream.Done()
}

// Status is the state of the stream with a peer, as this node sees it.
type Status struct {
	Life  uint64            // the peer's life; 0 if none was met since this node opened, or was renamed
	Left  bool              // it has left
	Other stream.GroupError // how the peer was last heard to differ; zero if it does not

	// Silent is the time since the last frame of the peer arrived, or 0 if none ever
	// has. A peer with nothing to send is silent, so this is not a failure detector.
	Silent time.Duration

	Unacked uint64 // messages that it has not acknowledged; if it has left, what was not acknowledged until then
	Backlog int    // their size in bytes
	stream.Stats
}

// Status returns the present Status of the peer, the zero Status for an unknown one.
func (m *Mail) Status(peer dmutex.NodeID) Status {
	p := m.peer(peer)
	if p == nil {
		return Status{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stream
	st := Status{Life: s.Peer(), Left: s.Left(), Other: p.other, Unacked: s.Sent() - s.Acked(), Backlog: s.Backlog(), Stats: s.Stats()}
	if p.spoke != 0 {
		st.Silent = time.Duration(max(m.now()-p.spoke, 1))
	}
	return st
}
