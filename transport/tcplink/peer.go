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
	addr   string          // another address makes another peer
	ctx    context.Context // ends when the peer is removed or gets another address, or the link is closed
	cancel context.CancelFunc

	mu      sync.Mutex
	conn    *conn     // nil while there is none
	pending []byte    // whole frames that wait for conn
	trouble error     // why there is none; nil if there never was one
	lost    time.Time // when there last was one
}

// A conn is a connection whose other side is known. Its peer's mutex guards it.
type conn struct {
	net.Conn
	life   uint64                          // of the process at the other side, 0 if it is not known
	direct func(data []byte) (rest []byte) // see newDirect
	out    []byte                          // what drain writes, which has left pending
	wake   *sync.Cond                      // drain has something to write, or has written all, or the connection has ended
	asked  atomic.Pointer[chan struct{}]   // closed when the other side completes a frame; nil if nobody waits
	silent atomic.Int32                    // heartbeats during which it completed none, while we were reading
}

const (
	headerSize = 4

	// The lengths of frames without content. A question asks for a heartbeat.
	heartbeat = 0
	question  = math.MaxUint32
)

func newPeer(l *Link, id dmutex.NodeID, addr string) *peer {
	p := &peer{link: l, self: l.self, id: id, addr: addr}
	p.ctx, p.cancel = context.WithCancel(l.ctx)
	return p
}

func appendFrame(b, frame []byte) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(frame))), frame...)
}

func (p *peer) send(frame []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.pending)+headerSize+len(frame) > backlog {
		return transport.ErrFull
	}
	p.pending = appendFrame(p.pending, frame)
	p.flush()
	return nil
}

// say sends a heartbeat or a question. The caller has p.mu.
func (p *peer) say(length uint32) {
	if p.conn != nil && len(p.pending)+headerSize <= backlog {
		p.pending = binary.BigEndian.AppendUint32(p.pending, length)
		p.flush()
	}
}

// flush writes what the socket takes at once, and leaves the rest to drain. While drain
// writes, everything waits for it. The caller has p.mu.
func (p *peer) flush() {
	c := p.conn
	if c == nil || len(c.out) > 0 || len(p.pending) == 0 {
		return
	}
	c.out, p.pending = p.pending, c.out
	if c.out = c.direct(c.out); len(c.out) > 0 {
		c.wake.Broadcast()
	}
}

// drain writes what flush leaves, and what comes meanwhile, until the connection ends.
func (p *peer) drain(c *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.conn == c {
		if len(c.out) == 0 {
			c.wake.Broadcast()
			c.wake.Wait()
			continue
		}
		p.mu.Unlock()
		_, err := c.Write(c.out)
		p.mu.Lock()
		if err != nil {
			p.lose(c, err)
			return
		}
		if c.out = c.out[:0]; cap(c.out) > backlog/4 {
			c.out = nil // the jam is over
		}
		if p.conn == c {
			c.out, p.pending = p.pending, c.out
		}
	}
}

// linger waits until drain has written all, but no longer than that time.
func (p *peer) linger(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.conn
	if c == nil || c.SetWriteDeadline(until) != nil {
		return
	}
	for p.conn == c && len(c.out) > 0 {
		c.wake.Wait()
	}
}

// take makes a connection the peer's, in place of the one that it may have. The answer to
// its greeting, if there is one, is written before all frames. take returns nil if the peer
// was removed meanwhile.
func (p *peer) take(nc net.Conn, life uint64, answer []byte) *conn {
	c := &conn{Conn: nc, life: life, direct: newDirect(nc), out: answer, wake: sync.NewCond(&p.mu)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil
	}
	if p.conn != nil {
		p.lose(p.conn, net.ErrClosed)
	}
	p.conn, p.trouble = c, nil
	p.link.refused.Store(nil)
	p.flush()
	return c
}

// lose ends a connection. The caller has p.mu.
func (p *peer) lose(c *conn, why error) {
	c.Close()
	c.wake.Broadcast()
	if p.conn == c {
		p.conn, p.lost = nil, time.Now()
		p.trouble = fmt.Errorf("tcplink: the connection to node %d was lost: %w", p.id, reason(why))
	}
}

// serve uses a connection until it ends.
func (p *peer) serve(c *conn) {
	p.link.log.Log(slog.LevelInfo, "tcplink: connected", slog.Any("node", p.self), slog.Any("peer", p.id), slog.Any("address", c.RemoteAddr()))
	p.link.running.Go(func() { p.drain(c) })
	err := p.read(c)
	p.mu.Lock()
	p.lose(c, err)
	p.mu.Unlock()
	if p.ctx.Err() == nil { // else it is our own doing
		p.link.log.Log(slog.LevelInfo, "tcplink: connection lost", slog.Any("node", p.self), slog.Any("peer", p.id), slog.Any("err", err))
		p.link.running.Go(p.watch)
	}
}

// answers asks the other side of a connection for a sign of life, and waits for one.
func (p *peer) answers(c *conn) bool {
	p.mu.Lock()
	asked := c.asked.Load()
	if asked == nil {
		asked = new(make(chan struct{}))
		c.asked.Store(asked)
	}
	p.say(question)
	p.mu.Unlock()
	select {
	case <-*asked:
		return true
	case <-time.After(p.link.pace.grace):
	case <-p.ctx.Done():
	}
	return false
}

// setTrouble keeps a reason why there is no connection.
func (p *peer) setTrouble(trouble error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		p.trouble = trouble
	}
}

var (
	errOversized = errors.New("the peer sends a frame that is too long")
	errSilent    = errors.New("the peer is silent")
)

const maxBurst = 64 // frames delivered together

// read delivers the frames that arrive, until the connection breaks.
func (p *peer) read(c *conn) error {
	frames := make([][]byte, 0, maxBurst)
	buf := make([]byte, headerSize+maxFrame)
	start, end := 0, 0
	silent := int32(0)
	for {
		c.silent.Store(silent)
		n, err := c.Read(buf[end:])
		silent = c.silent.Swap(math.MinInt32)
		end += n
		for end-start >= headerSize {
			size := binary.BigEndian.Uint32(buf[start:])
			if size == question {
				size = heartbeat
				p.mu.Lock()
				p.say(heartbeat)
				p.mu.Unlock()
			}
			if size > maxFrame {
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
			if len(frames) == maxBurst {
				p.deliver(frames)
				frames = frames[:0]
			}
			start, silent = next, 0
			if c.asked.Load() != nil { // any frame will do: heartbeats wait behind others
				close(*c.asked.Swap(nil))
			}
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
		p.link.host.Deliver(p.id, frames)
	}
}

// remove ends the peer's connections and goroutines, and returns the frames that wait. The
// peer is not used again.
func (p *peer) remove() (pending []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel()
	if p.conn != nil {
		p.lose(p.conn, net.ErrClosed)
	}
	pending, p.pending = p.pending, nil
	return pending
}

// dial maintains a connection to a peer with a lower id, until it is removed. Only a connection
// that lasted resets the back-off: otherwise two processes with the same number would replace each
// other at full speed.
func (p *peer) dial() {
	l := p.link
	delay := l.pace.minRedial
	for watched := false; ; {
		lasted, err := p.connect()
		if watched = watched || lasted > 0; !watched && refusals(0, err) > 0 { // serve watches a peer that was connected
			watched = true
			l.running.Go(p.watch)
		}
		if lasted > l.pace.greeting {
			delay = l.pace.minRedial
		}
		if err != nil && p.ctx.Err() == nil {
			p.setTrouble(fmt.Errorf("tcplink: cannot connect to node %d at %s: %w", p.id, p.addr, err))
			l.log.Often(l.level(err), "tcplink: cannot connect, will keep trying", slog.Any("node", p.self), slog.Any("peer", p.id), slog.String("address", p.addr), slog.Any("err", err))
		}
		if !wait(p.ctx, delay-l.pace.jitter(delay/2+1)) {
			return
		}
		delay = min(2*delay, l.pace.maxRedial)
	}
}

// connect dials, exchanges greetings and serves the connection until it breaks. It returns
// how long it lasted, or why there was none.
func (p *peer) connect() (lasted time.Duration, err error) {
	l := p.link
	nc, err := l.connect(p.ctx, p.addr)
	if err != nil {
		return 0, reason(err)
	}
	nc = l.guard.Load().over(nc, true)
	defer hold(p.ctx, nc)()
	if err := p.greet(nc); err != nil {
		return 0, fmt.Errorf("no greeting: %w", reason(err))
	}
	began := time.Now()
	if c := p.take(nc, 0, nil); c != nil {
		p.serve(c)
	}
	return time.Since(began), nil
}

// greet is the dialing side of the greeting.
func (p *peer) greet(nc net.Conn) error {
	l := p.link
	_ = nc.SetDeadline(time.Now().Add(l.pace.greeting)) // what fails to set it fails to write
	if err := l.guard.Load().authenticate(nc, p.id, p.addr); err != nil {
		return err
	}
	own, _ := l.host.Life()
	if _, err := nc.Write(greeting{From: p.self, To: p.id, Life: own}.bytes()); err != nil {
		return err
	}
	var g greeting
	switch err := g.read(nc); {
	case errors.Is(err, io.EOF) && l.dynamic:
		return passing{errNotPeer}
	case err != nil:
		return err
	case g.To != p.self:
		return misled(g.To)
	case g.From != p.id:
		return fmt.Errorf("node %d answers there", g.From)
	case g.Taken != 0:
		if g.Taken != own {
			l.host.Taken(p.id, g.Taken)
		}
		return fmt.Errorf("it is connected with another process that uses the number of this node, %d", p.self)
	}
	_ = nc.SetDeadline(time.Time{})
	return nil
}

// A greeting is what each side says first, behind greetingMark.
type greeting struct {
	From, To dmutex.NodeID
	Life     uint64 // of the dialing side, 0 if it has told none

	// Taken is not 0 in an answer that refuses: the life of the other process, or 1 if that is lower.
	Taken uint64
}

const greetingMark = "dmutex\x00\x02" // the last byte is the version

func (g greeting) bytes() []byte {
	b, _ := binary.Append([]byte(greetingMark), binary.BigEndian, g) // its size is fixed
	return b
}

func (g *greeting) read(r io.Reader) error {
	b := make([]byte, len(greetingMark)+binary.Size(g))
	n, err := io.ReadAtLeast(r, b, len(greetingMark)) // that of another version may be shorter
	if err != nil {
		return err
	}
	if string(b[:len(greetingMark)]) != greetingMark {
		return errors.New("the greeting is of another protocol, or of another version of this one")
	}
	if _, err = io.ReadFull(r, b[n:]); err == nil {
		_, err = binary.Decode(b[len(greetingMark):], binary.BigEndian, g)
	}
	return err
}

func misled(to dmutex.NodeID) error { return fmt.Errorf("the greeting is for node %d", to) }
