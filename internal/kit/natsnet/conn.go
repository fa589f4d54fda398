package natsnet

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

var errRefused = errors.New("natsnet: the server does not answer")

// A conn is the client's end of a connection, and what the server knows of it. The mutex of the server guards it.
type conn struct {
	server   *Server
	way      *Way
	up, down line // to the server, and from it
	session
	left bool // the server has left it

	unread        []byte
	err           error     // what Read returns after unread; nil while the connection lasts
	reads, writes time.Time // until then they wait
}

// accept makes a connection. The caller has the mutex.
func (s *Server) accept(w *Way) *conn {
	c := &conn{server: s, way: w}
	c.up, c.down = line{c: c, held: &w.out, arrive: c.take}, line{c: c, held: &w.in, arrive: c.show}
	s.conns, w.conns = append(s.conns, c), append(w.conns, c)
	c.begin()
	return c
}

// show lets the client read, the end if that is nothing.
func (c *conn) show(b []byte) {
	switch {
	case len(b) == 0:
		c.fail(io.EOF)
	case c.err == nil:
		c.unread = append(c.unread, b...)
		c.way.wake.Broadcast()
	}
}

// fail ends the client's end.
func (c *conn) fail(why error) {
	if c.err == nil {
		c.err = why
		c.way.wake.Broadcast()
	}
}

// end ends the server's end, and loses what was under way.
func (c *conn) end() {
	if c.left {
		return
	}
	c.left = true
	c.server.conns = slices.DeleteFunc(c.server.conns, func(o *conn) bool { return o == c })
	c.up.drop()
	c.down.drop()
	c.down.send(nil)
}

// hangUp ends the client's end, and the server's when it has read all.
func (c *conn) hangUp() {
	c.fail(net.ErrClosed)
	c.up.send(nil)
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if !c.way.wait(c.reads, func() bool { return len(c.unread) > 0 || c.err != nil }) {
		return 0, os.ErrDeadlineExceeded
	}
	if len(c.unread) == 0 {
		return 0, c.err
	}
	n := copy(b, c.unread)
	if c.unread = c.unread[n:]; len(c.unread) == 0 {
		c.unread = nil
	}
	return n, nil
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	full := func() bool { return c.server.waits && c.up.size > window && c.err == nil && !c.left }
	switch {
	case !c.way.wait(c.writes, func() bool { return !full() }):
		return 0, os.ErrDeadlineExceeded
	case c.err != nil:
		return 0, net.ErrClosed
	case len(b) > 0 && !c.left:
		c.up.send(b)
	}
	return len(b), nil
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	if c.err == nil {
		c.hangUp()
	}
	c.unread = nil
	return nil
}

// SetDeadline implements [net.Conn], for calls that begin later.
func (c *conn) SetDeadline(t time.Time) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.reads, c.writes = t, t
	return nil
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.writes = t
	return nil
}

// SetReadDeadline implements [net.Conn]. nats.go sets none.
func (c *conn) SetReadDeadline(time.Time) error { return errors.ErrUnsupported }

func (c *conn) LocalAddr() net.Addr  { return address("client") }
func (c *conn) RemoteAddr() net.Addr { return address("server") }

type address string

func (address) Network() string  { return "memory" }
func (a address) String() string { return string(a) }

// A line carries bytes in one direction.
type line struct {
	c      *conn
	held   *bool
	arrive func(b []byte)
	queue  []chunk
	size   int
	last   time.Time // when the last of the queue arrives
	timer  *time.Timer
}

// A chunk arrives as a whole. Without bytes it is the end.
type chunk struct {
	data []byte
	due  time.Time
}

func (l *line) send(b []byte) {
	due, w := time.Now(), l.c.way
	if w.delay > 0 && (l.c.greeted || l.c.server.waits) {
		due = due.Add(time.Duration(w.luck.Int64N(int64(w.delay))))
	}
	if due.Before(l.last) {
		due = l.last
	}
	l.last = due
	l.queue = append(l.queue, chunk{slices.Clone(b), due})
	l.size += len(b)
	l.pump()
}

// pump lets arrive what is due.
func (l *line) pump() {
	for len(l.queue) > 0 && !*l.held && !l.c.way.paused {
		next := l.queue[0]
		if wait := time.Until(next.due); wait > 0 {
			if l.timer != nil {
				l.timer.Stop()
			}
			l.timer = time.AfterFunc(wait, func() {
				l.c.server.mu.Lock()
				defer l.c.server.mu.Unlock()
				l.pump()
			})
			return
		}
		l.queue = l.queue[1:]
		l.size -= len(next.data)
		l.c.way.wake.Broadcast()
		l.arrive(next.data)
	}
}

func (l *line) drop() {
	l.queue, l.size = nil, 0
	if l.timer != nil {
		l.timer.Stop()
	}
}
