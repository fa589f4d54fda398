package tcplink

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A peer is another node, with a connection or without.
type peer struct {
	link   *Link
	self   dmutex.NodeID // of this node; another number has other peers
	id     dmutex.NodeID
	moved  chan struct{}   // pokes dial: the address has changed
	ctx    context.Context // ends when the peer is removed, or the link closed
	cancel context.CancelFunc

	mu      sync.Mutex
	addr    string
	hangUp  context.CancelFunc // ends what has begun of a connection
	latest  net.Conn           // the newest that was accepted and answered
	conn    *conn              // nil while there is none
	former  *conn              // the one before it, while that is alive; frames go to both
	pending []byte             // whole frames that wait for conn
	trouble error              // why there is none; nil if there never was one
	lost    time.Time          // when there last was one
}

// A conn is a connection whose other side is known. Its peer's mutex guards it,
// except that the writer owns out.
type conn struct {
	net.Conn
	direct *direct    // writes without waiting; nil where that cannot be done
	writer writer     // whose turn it is to write
	wake   *sync.Cond // the drain's turn has come, or the connection is broken
	out    []byte     // what is being written
	copies []byte     // of a former connection: whole frames that wait for it
	said   bool       // something since the last heartbeat
	broken bool

	// silent counts the heartbeats during which the other side completed no frame,
	// while we were reading.
	silent atomic.Int32
}

type writer uint8

const (
	nobody writer = iota // then nothing waits
	caller               // a Send, which does not wait
	drain                // the connection's own goroutine, which does
)

const headerSize = 4

func newPeer(l *Link, id dmutex.NodeID, addr string) *peer {
	p := &peer{link: l, self: l.self, id: id, addr: addr, moved: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	return p
}

func appendFrame(b, frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(frame))), frame...)
}

// send writes the frame if it is nobody's turn to write. Otherwise the frame waits.
func (p *peer) send(frame []byte) error {
	p.mu.Lock()
	c := p.conn
	if p.former != nil {
		p.former.copy(frame)
	}
	if c == nil || c.writer != nobody {
		defer p.mu.Unlock()
		if len(p.pending)+headerSize+len(frame) > Backlog {
			return transport.ErrFull
		}
		p.pending = appendFrame(p.pending, frame)
		return nil
	}
	c.writer, c.said = caller, true
	p.mu.Unlock()

	c.out = appendFrame(c.out[:0], frame)
	c.out = c.direct.write(c.out)

	p.mu.Lock()
	defer p.mu.Unlock()
	if len(c.out) == 0 && len(p.pending) == 0 {
		c.writer = nobody
	} else {
		c.writer = drain
		c.wake.Signal()
	}
	return nil
}

// copy also sends a frame to a former connection, if there is room.
func (c *conn) copy(frame []byte) {
	if len(c.copies)+headerSize+len(frame) > maxCopies {
		return
	}
	c.copies = appendFrame(c.copies, frame)
	if c.writer == nobody {
		c.writer = drain
		c.wake.Signal()
	}
}

// maxCopies bounds what waits for a former connection, in bytes.
const maxCopies = 64 << 10

// drain writes what waits, when it is its turn, until the connection breaks.
func (p *peer) drain(c *conn) {
	for p.awaitTurn(c) {
		if _, err := c.Write(c.out); err != nil {
			p.fail(c, err)
		}
		c.out = c.out[:0]
		if cap(c.out) > Backlog/4 {
			c.out = nil // the jam is over
		}
	}
}

// awaitTurn returns when there is something in c.out for the drain to write,
// or false when there never will be.
func (p *peer) awaitTurn(c *conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !c.broken {
		if c.writer == drain {
			switch {
			case len(c.out) > 0:
			case c == p.former:
				c.out, c.copies = c.copies, c.out
			default:
				c.out, p.pending = p.pending, c.out
			}
			if len(c.out) > 0 {
				return true
			}
			c.writer = nobody
		}
		c.wake.Wait()
	}
	return false
}

// serve uses a connection until it breaks. It does not use one that was dialed if the
// peer has moved meanwhile, or one that was accepted if a newer one was answered
// meanwhile, or any if the peer was removed.
//
// A newer accepted connection does not end the one before. The older one may be dead
// and not noticed yet; or two processes may use the peer's number, and the session
// above has to find out which of them is the member. Until one of them ends, both are
// read, and every frame is sent to both.
func (p *peer) serve(nc net.Conn, dialed string) {
	c := &conn{Conn: nc, direct: newDirect(nc), wake: sync.NewCond(&p.mu), writer: drain}
	p.mu.Lock()
	if dialed != "" && dialed != p.addr || dialed == "" && nc != p.latest || p.ctx.Err() != nil {
		p.mu.Unlock()
		return
	}
	if p.conn != nil {
		if p.former != nil {
			p.former.breakOff()
		}
		p.former = p.conn
	}
	p.conn, p.trouble = c, nil
	p.mu.Unlock()
	p.link.log.Load().Info("tcplink: connected", "peer", p.id, "address", nc.RemoteAddr())
	p.link.running.Go(func() { p.drain(c) })
	err := p.read(c)
	p.fail(c, err)
	if p.ctx.Err() == nil { // else it is our own doing
		p.link.log.Load().Info("tcplink: connection lost", "peer", p.id, "error", err)
	}
}

// fail ends a connection.
func (p *peer) fail(c *conn, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c.breakOff()
	if p.former == c {
		p.former = nil
	}
	if p.conn != c {
		return
	}
	if p.conn, p.former = p.former, nil; p.conn != nil { // the one before is alive, after all
		p.pending = append(p.pending, p.conn.copies...)
		p.conn.copies = nil
		if p.conn.writer == nobody {
			p.conn.writer = drain
			p.conn.wake.Signal()
		}
		return
	}
	p.lost = time.Now()
	if p.trouble == nil {
		p.trouble = fmt.Errorf("tcplink: the connection to node %d was lost: %w", p.id, reason(why))
	}
}

// setTrouble keeps a reason why there is no connection.
func (p *peer) setTrouble(trouble error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		p.trouble = trouble
	}
}

// why says why there is no connection, nil if there is one.
func (p *peer) why() error {
	last := p.link.refused.Load()
	p.mu.Lock()
	defer p.mu.Unlock()
	why := p.trouble
	switch {
	case p.conn != nil:
		return nil
	case why == nil && p.id > p.self:
		why = fmt.Errorf("tcplink: node %d has not connected: the node with the higher number dials", p.id)
	case why == nil && p.addr == "":
		why = fmt.Errorf("tcplink: cannot connect to node %d: %w", p.id, errNoAddress)
	case why == nil:
		why = fmt.Errorf("tcplink: not yet connected to node %d", p.id)
	}
	if p.id > p.self && last != nil && last.at.After(p.lost) { // perhaps it was this one
		why = fmt.Errorf("%w; a connection from %s was refused: %w", why, last.host, last.err)
	}
	return why
}

func (c *conn) breakOff() {
	c.broken = true
	c.Close()
	c.wake.Signal()
}

var errOversized = errors.New("the peer sends a frame that is too long")

// maxBurst is how many frames are delivered together at most, because the answer to
// the first waits for the last.
const maxBurst = 64

// read delivers the frames that arrive, until the connection breaks.
func (p *peer) read(c *conn) error {
	burst := p.link.burst
	frames := make([][]byte, 0, burst)
	buf := make([]byte, headerSize+MaxFrame)
	start, end := 0, 0
	silent := int32(0)
	for {
		c.silent.Store(silent)
		n, err := c.Read(buf[end:])
		silent = c.silent.Swap(math.MinInt32)
		end += n
		for end-start >= headerSize {
			size := binary.BigEndian.Uint32(buf[start:])
			if size > MaxFrame {
				err = errOversized
				break
			}
			next := start + headerSize + int(size)
			if next > end {
				break
			}
			if size > 0 {
				frames = append(frames, buf[start+headerSize:next:next])
			}
			if len(frames) == burst {
				p.deliver(frames)
				frames = frames[:0]
			}
			start, silent = next, 0
		}
		if len(frames) > 0 {
			p.deliver(frames)
			frames = frames[:0]
		}
		if err != nil {
			return err
		}
		if start > 0 {
			start, end = 0, copy(buf, buf[start:end])
		}
	}
}

// deliver delivers frames, unless the peer was removed meanwhile.
func (p *peer) deliver(frames [][]byte) {
	if p.ctx.Err() == nil {
		p.link.deliver(p.id, frames)
	}
}

// beat is called at every heartbeat.
func (p *peer) beat() {
	if !p.alive() { // told of without the lock: Send would wait for the log
		p.link.log.Load().Warn("tcplink: the peer is silent", "peer", p.id)
	}
}

// alive sends a heartbeat if nothing else was sent. If the peer has been silent for too
// long, it breaks the connection instead, and returns false.
func (p *peer) alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f := p.former; f != nil {
		if f.copy(nil); f.silent.Add(1) > p.link.pace.patience {
			f.breakOff()
		}
	}
	c := p.conn
	if c == nil {
		return true
	}
	if c.silent.Add(1) > p.link.pace.patience {
		p.trouble = fmt.Errorf("tcplink: node %d was connected and is silent", p.id)
		c.breakOff()
		return false
	}
	if !c.said && c.writer == nobody {
		p.pending = appendFrame(p.pending, nil)
		c.writer = drain
		c.wake.Signal()
	}
	c.said = false
	return true
}

// move changes the address.
func (p *peer) move(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addr == addr {
		return
	}
	p.addr = addr
	if p.id < p.self && p.conn != nil {
		p.conn.breakOff()
	}
	if p.hangUp != nil {
		p.hangUp()
	}
	select {
	case p.moved <- struct{}{}:
	default:
	}
}

// remove ends the peer's connections and goroutines. The peer is not used again.
func (p *peer) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel()
	for _, c := range []*conn{p.conn, p.former} {
		if c != nil {
			c.breakOff()
		}
	}
}

// dial maintains a connection to a peer with a lower id, until it is removed. Only a connection
// that lasted resets the back-off: otherwise two processes with the same number would replace each
// other at full speed.
func (p *peer) dial() {
	l := p.link
	delay := l.pace.minRedial
	for {
		nc, addr, err := p.connect()
		switch {
		case err == nil:
			began := time.Now()
			p.serve(nc, addr)
			l.drop(nc)
			if time.Since(began) > l.pace.greeting {
				delay = l.pace.minRedial
			}
		case err == errNoAddress || p.ctx.Err() != nil:
		default:
			p.setTrouble(fmt.Errorf("tcplink: cannot connect to node %d at %s: %w", p.id, addr, err))
			level := slog.LevelWarn
			if _, ok := errors.AsType[passing](err); ok {
				level = slog.LevelDebug
			}
			l.often.Load().Log(p.ctx, level, "tcplink: cannot connect, will keep trying", "peer", p.id, "address", addr, "error", err)
		}
		if !wait(p.ctx, delay-l.pace.jitter(delay/2+1), p.moved) {
			return
		}
		delay = min(2*delay, l.pace.maxRedial)
	}
}

var errNoAddress = errors.New("its address is not known")

// connect dials and exchanges greetings. It returns the address as well.
func (p *peer) connect() (net.Conn, string, error) {
	l := p.link
	ctx, cancel := context.WithTimeout(p.ctx, l.pace.greeting)
	defer cancel()
	p.mu.Lock()
	addr := p.addr
	p.hangUp = cancel
	p.mu.Unlock()
	if addr == "" {
		return nil, "", errNoAddress
	}
	dialer := net.Dialer{Control: l.control}
	nc, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, addr, reason(err)
	}
	nc = l.guard.Load().client(nc)
	if !l.hold(nc) {
		return nil, addr, transport.ErrClosed
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		nc.Close()
		close(closed)
	})
	if err = p.greet(nc, addr); !stop() {
		<-closed
		err = ctx.Err() // rather than what came of closing
	}
	if err != nil {
		l.drop(nc)
		return nil, addr, fmt.Errorf("no greeting: %w", reason(err))
	}
	return nc, addr, nil
}

// greet is the dialing side of the greeting.
func (p *peer) greet(nc net.Conn, addr string) error {
	if err := p.link.guard.Load().check(nc, p.id, addr); err != nil {
		return err
	}
	if err := writeGreeting(nc, p.self, p.id); err != nil {
		return err
	}
	from, err := readGreeting(nc, p.self)
	switch {
	case errors.Is(err, io.EOF) && p.link.dynamic:
		return passing{error: errNotPeer}
	case err != nil:
		return err
	case from != p.id:
		return fmt.Errorf("node %d answers there", from)
	}
	return nil
}

const (
	greetingMark = "dmutex\x00\x01" // the last byte is the version
	greetingSize = len(greetingMark) + 8 + 8
)

func writeGreeting(w io.Writer, from, to dmutex.NodeID) error {
	b := append(make([]byte, 0, greetingSize), greetingMark...)
	b = binary.BigEndian.AppendUint64(b, uint64(from))
	b = binary.BigEndian.AppendUint64(b, uint64(to))
	_, err := w.Write(b)
	return err
}

// readGreeting returns the node that speaks, if the greeting is for this node.
func readGreeting(r io.Reader, self dmutex.NodeID) (from dmutex.NodeID, err error) {
	from, to, err := readIDs(r)
	switch {
	case err != nil:
		return dmutex.None, err
	case to != self:
		return dmutex.None, misled(to)
	}
	return from, nil
}

func misled(to dmutex.NodeID) error { return fmt.Errorf("the greeting is for node %d", to) }

// readIDs reads a greeting, which may be for another node.
func readIDs(r io.Reader) (from, to dmutex.NodeID, err error) {
	var b [greetingSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return dmutex.None, dmutex.None, err
	}
	if string(b[:len(greetingMark)]) != greetingMark {
		return dmutex.None, dmutex.None, errors.New("the greeting is of another protocol, or of another version of this one")
	}
	ids := b[len(greetingMark):]
	return dmutex.NodeID(binary.BigEndian.Uint64(ids)), dmutex.NodeID(binary.BigEndian.Uint64(ids[8:])), nil
}
