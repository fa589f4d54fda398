package streamnet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// A Process has sockets on a host. It is the outside.Network of a simulated process.
type Process struct {
	host   *Host
	dead   bool
	paused bool
	wake   *sync.Cond // it was paused, goes on, or has died
}

// Process starts a process on the host.
func (h *Host) Process() *Process {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	p := &Process{host: h, dead: h.off, wake: sync.NewCond(&h.net.mu)}
	h.processes = append(h.processes, p)
	return p
}

// Kill ends a process: its system closes the sockets, so that other hosts see the connections end and new ones
// refused. Whatever still runs in the process gets an error from each call.
func (p *Process) Kill() {
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if p.dead {
		return
	}
	p.dead = true
	for _, l := range p.host.listeners {
		if l.process == p {
			l.end(true)
		}
	}
	for _, c := range n.ends(func(c *conn) bool { return c.process == p }) {
		c.close()
	}
	p.host.processes = slices.DeleteFunc(p.host.processes, func(other *Process) bool { return other == p })
	p.wake.Broadcast()
}

// Pause stops a process, as a signal does, or a listener that hangs: its calls return only after Resume. Its system
// takes connections and bytes for it, as many as it has room for.
func (p *Process) Pause() { p.setPaused(true) }

// Resume lets a paused process go on.
func (p *Process) Resume() { p.setPaused(false) }

func (p *Process) setPaused(paused bool) {
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	p.paused = paused
	p.wake.Broadcast()
	for _, c := range n.ends(func(c *conn) bool { return c.process == p }) {
		c.wake.Broadcast()
	}
	for _, l := range p.host.listeners {
		l.wake.Broadcast()
	}
}

// What package net wraps in a net.OpError.
var (
	errEnd     = io.EOF
	errReset   = os.NewSyscallError("read", syscall.ECONNRESET)
	errUnsent  = os.NewSyscallError("write", syscall.ECONNRESET)
	errPipe    = os.NewSyscallError("write", syscall.EPIPE)
	errRefused = os.NewSyscallError("connect", syscall.ECONNREFUSED)
	errDown    = os.NewSyscallError("socket", syscall.ENETDOWN)
)

// resolve returns the host and port of an address. The host may not exist.
func (n *Network) resolve(address string) (ip netip.Addr, port uint16, err error) {
	name, service, err := net.SplitHostPort(address)
	if err != nil {
		return ip, 0, err
	}
	number, err := strconv.ParseUint(service, 10, 16)
	if err != nil {
		return ip, 0, err
	}
	if name == "" {
		return netip.IPv4Unspecified(), uint16(number), nil
	}
	if ip, err = netip.ParseAddr(name); err == nil {
		return ip.Unmap(), uint16(number), nil
	}
	if h := n.names[name]; h != nil {
		return h.addr, uint16(number), nil
	}
	return ip, 0, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
}

// LookupHost returns the address of a name or address.
func (p *Process) LookupHost(_ context.Context, host string) ([]string, error) {
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	ip, _, err := n.resolve(net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	return []string{ip.String()}, nil
}

// Listen listens on a port of the host, with the port 0 on one that is free.
func (p *Process) Listen(_ context.Context, address string) (net.Listener, error) {
	h := p.host
	n := h.net
	n.mu.Lock()
	defer n.mu.Unlock()
	ip, port, err := n.resolve(address)
	switch {
	case err != nil:
	case p.dead:
		err = errDown
	case ip != h.addr && !ip.IsUnspecified():
		err = os.NewSyscallError("bind", syscall.EADDRNOTAVAIL)
	case h.listeners[port] != nil:
		err = os.NewSyscallError("bind", syscall.EADDRINUSE)
	}
	if err != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
	}
	if port == 0 {
		port = h.freePort()
	}
	l := &listener{process: p, port: port, wake: sync.NewCond(&n.mu)}
	h.listeners[port] = l
	return l, nil
}

func (h *Host) freePort() uint16 {
	for h.port++; h.port < 49152 || h.listeners[h.port] != nil; h.port++ {
	}
	return h.port
}

// backlog is how many connections wait for Accept.
const backlog = 128

// A listener takes connections for a process.
type listener struct {
	process *Process
	port    uint16
	queue   []*conn
	closed  bool
	wake    *sync.Cond
}

func (l *listener) Addr() net.Addr { return l.process.host.tcp(l.port) }

func (l *listener) Accept() (net.Conn, error) {
	n := l.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for !l.closed && (l.process.paused || len(l.queue) == 0) {
		l.wake.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	c := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	return c, nil
}

func (l *listener) Close() error {
	n := l.process.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if l.closed {
		return &net.OpError{Op: "close", Net: "tcp", Addr: l.Addr(), Err: net.ErrClosed}
	}
	l.end(true)
	return nil
}

// end ends a listener. If its host is on, it tells those who wait to be accepted.
func (l *listener) end(tell bool) {
	l.closed = true
	delete(l.process.host.listeners, l.port)
	for _, c := range l.queue {
		if tell {
			c.abort()
		}
	}
	l.queue = nil
	l.wake.Broadcast()
}

// Dial connects with an address. A host that is off, cut off or without room answers nothing, until ctx ends.
func (p *Process) Dial(ctx context.Context, address string) (net.Conn, error) {
	n := p.host.net
	n.mu.Lock()
	defer n.mu.Unlock()
	fail := func(remote net.Addr, err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Addr: remote, Err: err}
	}
	ip, port, err := n.resolve(address)
	if err != nil {
		return fail(nil, err)
	}
	if ip.IsUnspecified() {
		ip = p.host.addr
	}
	far := n.hosts[ip]
	if far == nil { // an address without a host: silence
		far = &Host{net: n, addr: ip, off: true}
	}
	c := &conn{process: p, near: p.host, local: p.host.tcp(p.host.freePort()), remote: far.tcp(port), wake: sync.NewCond(&n.mu)}
	c.peer = &conn{near: far, local: c.remote, remote: c.local, peer: c, wake: sync.NewCond(&n.mu)}
	w := n.way(route{p.host, far})
	w.dialed++
	c.out, c.in = n.newStream(c, c.peer, 2*w.dialed), n.newStream(c.peer, c, 2*w.dialed+1)
	c.peer.in, c.peer.out = c.out, c.in
	defer context.AfterFunc(ctx, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		c.wake.Broadcast()
	})()
	if !p.dead && ctx.Err() == nil {
		n.conns = append(slices.DeleteFunc(n.conns, (*conn).over), c)
		c.out.send(syn, nil)
	}
	for !p.dead && ctx.Err() == nil && c.in.err == nil && (!c.ready || p.paused) {
		c.wake.Wait()
	}
	switch {
	case p.dead:
		return fail(c.remote, errDown)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		c.abort()
		return fail(c.remote, os.ErrDeadlineExceeded)
	case ctx.Err() != nil:
		c.abort()
		return fail(c.remote, ctx.Err())
	case !c.ready:
		c.close()
		return fail(c.remote, errRefused)
	}
	return c, nil
}

// A conn is one end of a connection. The mutex of the network guards it.
type conn struct {
	process       *Process // nil until a listener has taken it
	near          *Host
	local, remote *net.TCPAddr
	peer          *conn
	in, out       *stream
	wake          *sync.Cond
	ready         bool // the other end has answered
	closed        bool // by its process
	gone          bool // its host was off since
	broken        bool // by a reset
	piped         bool // a call has told of that, or the other end had ended before
	reads, writes deadline
}

func (c *conn) host() *Host { return c.near }

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// asked is the system of a host that is asked for a connection.
func (c *conn) asked() {
	l := c.near.listeners[uint16(c.local.Port)]
	switch {
	case l == nil:
		c.closed = true
		c.out.send(rst, nil)
	case len(l.queue) >= backlog: // nothing is said, and the other end asks again
		time.AfterFunc(time.Second, func() {
			c.out.net.mu.Lock()
			defer c.out.net.mu.Unlock()
			if !c.peer.closed && !c.peer.gone {
				c.in.send(syn, nil)
			}
		})
	default:
		c.process, c.ready = l.process, true
		l.queue = append(l.queue, c)
		l.wake.Broadcast()
		c.out.send(ack, nil)
	}
}

// fail breaks an end, into which s leads.
func (c *conn) fail(s *stream) {
	c.broken = true
	if c.piped = c.piped || s.err == errEnd; s.err == nil {
		s.err = errReset
	}
	s.sent, c.out.sent = nil, nil
	c.out.taken = 0
	c.wake.Broadcast()
}

func (c *conn) fault(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// wait waits until the process runs, and returns why a call of it fails.
func (c *conn) wait(by *deadline) error {
	for c.process.paused && !c.process.dead && !c.closed {
		c.wake.Wait()
	}
	switch {
	case c.closed || c.process.dead:
		return net.ErrClosed
	case by.passed():
		return os.ErrDeadlineExceeded
	}
	return nil
}

func (c *conn) Read(b []byte) (int, error) {
	n := c.in.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		err := c.wait(&c.reads)
		if err == nil && len(c.in.unread) == 0 {
			err = c.in.err
		}
		switch {
		case err == io.EOF:
			return 0, err
		case err != nil:
			return 0, c.fault("read", err)
		case len(b) == 0:
			return 0, nil
		}
		if len(c.in.unread) > 0 {
			k := copy(b, c.in.unread)
			if c.in.unread = c.in.unread[k:]; len(c.in.unread) == 0 {
				c.in.unread = nil
			}
			c.in.taken -= k
			c.peer.wake.Broadcast()
			return k, nil
		}
		c.wake.Wait()
	}
}

func (c *conn) Write(b []byte) (wrote int, err error) {
	n := c.out.net
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if err = c.wait(&c.writes); err == nil && c.broken {
			if err = errUnsent; c.piped {
				err = errPipe
			}
			c.piped = true
		}
		if err != nil {
			return wrote, c.fault("write", err)
		}
		if k := min(c.out.window(), len(b)-wrote); k > 0 {
			c.out.send(data, b[wrote:wrote+k])
			wrote += k
		}
		if wrote == len(b) {
			return wrote, nil
		}
		c.wake.Wait()
	}
}

func (c *conn) Close() error {
	n := c.out.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fault("close", net.ErrClosed)
	}
	c.close()
	return nil
}

// close closes an end as its system does: what was sent arrives, and then the end, unless something is unread.
func (c *conn) close() {
	if c.closed {
		return
	}
	if len(c.in.unread) > 0 {
		c.abort()
		return
	}
	c.end()
	if !c.gone && !c.broken {
		c.out.send(fin, nil)
	}
}

// abort closes an end, and tells the other that nobody knows the connection.
func (c *conn) abort() {
	c.end()
	c.out.sent = nil
	if !c.gone && !c.broken && c.peer.process != nil { // else nobody was asked for it yet
		c.out.send(rst, nil)
	}
}

func (c *conn) end() {
	c.closed = true
	c.in.unread = nil
	c.reads.stop()
	c.writes.stop()
	c.wake.Broadcast()
}

// lost reports whether an end is of no use any more.
func (c *conn) lost() bool { return c.closed || c.gone || c.broken }

// over reports whether nothing more happens to a connection.
func (c *conn) over() bool {
	ended := func(c *conn) bool { return c.closed || c.gone || c.process == nil }
	return ended(c) && ended(c.peer) && len(c.out.sent)+len(c.in.sent) == 0
}

func (c *conn) SetDeadline(t time.Time) error      { return c.setDeadline(t, &c.reads, &c.writes) }
func (c *conn) SetReadDeadline(t time.Time) error  { return c.setDeadline(t, &c.reads) }
func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadline(t, &c.writes) }

func (c *conn) setDeadline(t time.Time, of ...*deadline) error {
	n := c.in.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if c.closed {
		return c.fault("set", net.ErrClosed)
	}
	for _, d := range of {
		d.stop()
		d.at = t
		if wait := time.Until(t); !t.IsZero() && wait > 0 {
			d.timer = time.AfterFunc(wait, func() {
				n.mu.Lock()
				defer n.mu.Unlock()
				c.wake.Broadcast()
			})
		}
	}
	c.wake.Broadcast()
	return nil
}

// A deadline is when calls return.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

func (d *deadline) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
