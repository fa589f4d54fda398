package world

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A door is where a member listens for clients.
type door struct {
	p     *process
	calls chan net.Conn
	gone  chan struct{}
	once  sync.Once
}

func newDoor(p *process) *door {
	return &door{p: p, calls: make(chan net.Conn), gone: make(chan struct{})}
}

// Accept implements [net.Listener].
func (d *door) Accept() (net.Conn, error) {
	select {
	case nc := <-d.calls:
		d.p.waits(d.gone)
		return nc, nil
	case <-d.gone:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (d *door) Close() error { d.once.Do(func() { close(d.gone) }); return nil }

// Addr implements [net.Listener].
func (d *door) Addr() net.Addr { return memory(d.p.who) }

type memory string

func (memory) Network() string  { return "memory" }
func (m memory) String() string { return string(m) }

var errNobody = errors.New("nobody listens")

// dial connects a client with the member at an address.
func (p *process) dial(ctx context.Context, address string) (net.Conn, error) {
	p.waits(ctx.Done())
	var m *process
	p.w.mu.Lock()
	for _, s := range p.w.slots {
		if s.name()+":80" == address {
			m = s.now
		}
	}
	p.w.mu.Unlock()
	if m == nil || p.dead.Load() || m.dead.Load() || m.door == nil {
		return nil, errNobody
	}
	if p.mute.Load() || m.shut.Load() { // packets are dropped
		<-ctx.Done()
		return nil, ctx.Err()
	}
	here, far := net.Pipe()
	c := &wire{Conn: here, from: p, to: m, far: far}
	near := newEnd(p, m, p.w.slow(c))
	if m.hangs.Load() { // somebody accepts, and nobody answers
		go func() { _, _ = io.Copy(io.Discard, far); far.Close() }()
		p.keep(c)
		return near, nil
	}
	back := newEnd(m, p, p.w.slow(&returning{far, c}))
	select {
	case m.door.calls <- back:
	case <-m.door.gone:
		near.Close()
		back.Close()
		return nil, errNobody
	case <-ctx.Done():
		near.Close()
		back.Close()
		return nil, ctx.Err()
	}
	p.keep(c)
	return near, nil
}

func (p *process) keep(c *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wires = append(p.wires[max(0, len(p.wires)-8):], c)
}

// An end of a connection writes nothing while its process is paused, and keeps what is written to one that is, as the
// system there would.
type end struct {
	net.Conn
	from, to *process
	gone     chan struct{}
	once     sync.Once

	mu   sync.Mutex
	kept [][]byte // for the other process
}

func newEnd(from, to *process, c net.Conn) *end {
	return &end{Conn: c, from: from, to: to, gone: make(chan struct{})}
}

// Write implements [net.Conn].
func (e *end) Write(b []byte) (int, error) {
	e.from.waits(e.gone)
	e.mu.Lock()
	if len(e.kept) == 0 && e.to.hears() {
		e.mu.Unlock()
		return e.Conn.Write(b)
	}
	defer e.mu.Unlock()
	if e.kept = append(e.kept, bytes.Clone(b)); len(e.kept) == 1 {
		go e.hand()
	}
	return len(b), nil
}

// hand hands on what was kept when the other process hears again.
func (e *end) hand() {
	blocks(&e.to.still, e.gone)
	blocks(&e.to.ears, e.gone)
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.kept) > 0 {
		b := e.kept[0]
		e.mu.Unlock()
		_, _ = e.Conn.Write(b)
		e.mu.Lock()
		e.kept = e.kept[1:]
	}
}

// Close implements [net.Conn].
func (e *end) Close() error {
	e.once.Do(func() { close(e.gone) })
	return e.Conn.Close()
}

// A slow end hands on what is written to it some time later, in order: what is lost then is lost also if it was under way.
type slow struct {
	net.Conn
	queue chan func()
	gone  chan struct{}
	once  sync.Once
}

func (w *World) slow(end net.Conn) net.Conn {
	if w.wires == 0 {
		return end
	}
	s := &slow{Conn: end, queue: make(chan func(), 1024), gone: make(chan struct{})}
	luck := w.Random()
	go func() {
		for {
			select {
			case f := <-s.queue:
				if d := time.Duration(luck.Int64N(int64(w.wires))); !w.calm.Load() {
					time.Sleep(d)
				}
				f()
			case <-s.gone:
				return
			}
		}
	}()
	return s
}

// Write implements [net.Conn].
func (s *slow) Write(b []byte) (int, error) {
	b = bytes.Clone(b)
	select {
	case <-s.gone:
		return 0, net.ErrClosed
	case s.queue <- func() { _, _ = s.Conn.Write(b) }:
		return len(b), nil
	}
}

// Close implements [net.Conn].
func (s *slow) Close() error {
	s.once.Do(func() { close(s.gone) })
	return s.Conn.Close()
}

// A wire is the client's end of a connection. From some moment on it may lose everything in one direction, or in both.
type wire struct {
	net.Conn
	far      net.Conn
	from, to *process
	deaf     atomic.Bool // nothing arrives here
	mute     atomic.Bool // nothing leaves
}

func (c *wire) Write(b []byte) (int, error) {
	if c.mute.Load() || c.from.dead.Load() || c.to.dead.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wire) RemoteAddr() net.Addr { return memory(c.to.who) }

// returning is the member's end.
type returning struct {
	net.Conn
	c *wire
}

func (r *returning) Write(b []byte) (int, error) {
	if r.c.deaf.Load() || r.c.from.dead.Load() || r.c.to.dead.Load() {
		return len(b), nil
	}
	return r.Conn.Write(b)
}

// hangUp breaks the connections of a client with a member, all if there is none.
func (p *process) hangUp(member *process) {
	if p.way != nil {
		p.way.Drop()
		return
	}
	if p.socket != nil {
		for _, s := range p.w.slots {
			if m := p.w.machineOf(s.name()); member == nil || member.at == m {
				p.w.streams.Reset(m.Host, p.at.Host, 0)
			}
		}
		return
	}
	for _, c := range p.connections() {
		if member == nil || c.to == member {
			c.Close()
		}
	}
}

// silence makes the present connections lose everything in some directions. Later ones work, but over TCP and NATS, where
// it ends when neither is asked for.
func (p *process) silence(deaf, mute bool) {
	if p.way != nil {
		p.way.Hold(mute, deaf)
		return
	}
	if p.socket != nil {
		p.apart(mute, deaf)
		return
	}
	for _, c := range p.connections() {
		c.deaf.Store(deaf || c.deaf.Load())
		c.mute.Store(mute || c.mute.Load())
	}
}

func (p *process) connections() []*wire {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*wire(nil), p.wires...)
}
