// Package streamnet is a TCP network in memory, for simulations in a bubble of testing/synctest: hosts, processes on
// them, listeners and connections, with the errors that those of package net return, and faults that a test calls
// for.
//
// What happens to the bytes of a connection depends on the seed, the two hosts, how many connections they had before,
// and the bytes alone. Nothing here sleeps, or holds a mutex while it waits, so the time of a bubble goes on. As TCP
// does, the network neither loses nor reorders the bytes of a connection: what a cut holds back arrives after it.
package streamnet

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// A Path says how what one host sends reaches another. The zero Path delivers all at once.
type Path struct {
	MinDelay, MaxDelay time.Duration // drawn for each segment, which overtakes none
	Rate               int           // bytes a second of one connection; 0 is without bound
	Segment            int           // if not 0, bytes arrive in pieces of 1 to so many, drawn for each
	Window             int           // how many bytes a connection takes that are not read yet; 0 is 64 KiB
}

// A Network joins hosts. Its methods, and those of its hosts and processes, are safe for concurrent use.
type Network struct {
	seed uint64

	mu    sync.Mutex
	hosts map[netip.Addr]*Host
	names map[string]*Host
	paths map[route]*way
	conns []*conn // with an end that is open, in the order of their dials
}

type route struct{ from, to *Host }

// A way is a Path and its present troubles.
type way struct {
	Path
	cut    bool
	until  time.Time // nothing arrives before
	dialed uint64    // connections
}

// New returns a network without hosts.
func New(seed uint64) *Network {
	return &Network{seed: seed, hosts: make(map[netip.Addr]*Host), names: make(map[string]*Host), paths: make(map[route]*way)}
}

// A Host is a machine with one address.
type Host struct {
	net       *Network
	addr      netip.Addr
	off       bool
	port      uint16 // the last one that was free
	listeners map[uint16]*listener
	processes []*Process
}

// Host adds a machine with an IP address and perhaps names.
func (n *Network) Host(ip string, names ...string) *Host {
	n.mu.Lock()
	defer n.mu.Unlock()
	h := &Host{net: n, addr: netip.MustParseAddr(ip), port: 49151, listeners: make(map[uint16]*listener)}
	if n.hosts[h.addr] != nil {
		panic(fmt.Sprintf("streamnet: there is a host %s already", ip))
	}
	n.hosts[h.addr] = h
	for _, name := range names {
		n.names[name] = h
	}
	return h
}

// way returns the way from one host to another. The caller has the mutex.
func (n *Network) way(r route) *way {
	w := n.paths[r]
	if w == nil {
		w = new(way)
		n.paths[r] = w
	}
	return w
}

// Set says how what one host sends reaches another from now on.
func (n *Network) Set(from, to *Host, p Path) {
	n.change(from, to, func(w *way) { w.Path = p })
}

// Cut lets nothing arrive that one host sends to another, until Mend. Neither learns of it.
func (n *Network) Cut(from, to *Host) { n.change(from, to, func(w *way) { w.cut = true }) }

// Mend ends a cut and a stall. What they held back arrives.
func (n *Network) Mend(from, to *Host) {
	n.change(from, to, func(w *way) { w.cut, w.until = false, time.Time{} })
}

// Stall lets nothing arrive for a time.
func (n *Network) Stall(from, to *Host, d time.Duration) {
	n.change(from, to, func(w *way) { w.until = time.Now().Add(d) })
}

// Partition cuts hosts of different groups from each other, and mends all other ways between those hosts.
func (n *Network) Partition(groups ...[]*Host) {
	for i, group := range groups {
		for j, other := range groups {
			for _, from := range group {
				for _, to := range other {
					n.change(from, to, func(w *way) { w.cut, w.until = i != j, time.Time{} })
				}
			}
		}
	}
}

func (n *Network) change(from, to *Host, change func(*way)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n.way(route{from, to}))
	n.pump(func(s *stream) bool { return s.from.host() == from && s.to.host() == to })
}

// pump lets arrive what some streams have held back. The caller has the mutex.
func (n *Network) pump(which func(*stream) bool) {
	for _, c := range slices.Clone(n.conns) {
		for _, s := range []*stream{c.out, c.in} {
			if which(s) {
				s.pump()
			}
		}
	}
}

// Reset breaks the present connections of two hosts when so many more bytes of the first have arrived at the
// second, as a firewall does that forgets a connection: in the middle of a frame, if they are so many. Both ends
// learn of it. It returns how many connections there are.
func (n *Network) Reset(from, to *Host, after int) (found int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range slices.Clone(n.conns) {
		for _, s := range []*stream{c.out, c.in} {
			if s.from.host() == from && s.to.host() == to && s.from.ready && !s.from.lost() && !s.to.lost() {
				found++
				if s.doom = after; after <= 0 {
					s.reset()
				}
			}
		}
	}
	return found
}

// PowerOff ends a machine at once: nothing comes from it any more, and it answers nothing. Its processes are
// dead, see [Process.Kill].
func (h *Host) PowerOff() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.off = true
	for _, p := range h.processes {
		p.dead = true
		p.wake.Broadcast()
	}
	for _, c := range h.net.ends(func(c *conn) bool { return c.host() == h }) {
		c.gone = true
		if h.net.way(route{h, c.peer.host()}).cut {
			c.out.sent = nil // nobody sends it again
		}
		c.wake.Broadcast()
	}
	for _, l := range h.listeners {
		l.end(false)
	}
	h.processes = nil
}

// PowerOn starts a machine again, for new processes. It knows nothing of its former connections, and says so when
// something arrives on them.
func (h *Host) PowerOn() {
	h.net.mu.Lock()
	defer h.net.mu.Unlock()
	h.off = false
	h.net.pump(func(s *stream) bool { return s.to.host() == h })
}

// ends returns the ends of connections that are such. The caller has the mutex.
func (n *Network) ends(such func(*conn) bool) (ends []*conn) {
	for _, c := range n.conns {
		for _, end := range []*conn{c, c.peer} {
			if end.process != nil && such(end) {
				ends = append(ends, end)
			}
		}
	}
	return ends
}

// A stream is what one end of a connection sends to the other. The mutex of the network guards it.
type stream struct {
	net      *Network
	from, to *conn
	luck     *rand.Rand
	sent     []segment // and not arrived
	unread   []byte    // arrived
	taken    int       // bytes of sent and unread
	err      error     // what Read returns after unread; nil while the stream goes on
	free     time.Time // when the line has taken what was sent
	last     time.Time // when the last of sent arrives
	timer    *time.Timer
	doom     int // bytes to arrive before a reset; 0 if there will be none
}

type segment struct {
	kind kind
	data []byte
	due  time.Time
}

type kind uint8

const (
	data kind = iota
	syn       // a connection is asked for
	ack       // and accepted
	fin       // nothing more comes
	rst       // nobody knows the connection
)

func (s *stream) way() *way { return s.net.way(route{s.from.host(), s.to.host()}) }

// window is how many bytes s takes yet.
func (s *stream) window() int {
	w := s.way().Window
	if w == 0 {
		w = 64 << 10
	}
	return w - s.taken
}

// send sends bytes, or what kind says.
func (s *stream) send(k kind, b []byte) {
	w := s.way()
	for first := true; first || len(b) > 0; first = false {
		n := len(b)
		if w.Segment > 0 && n > 0 {
			n = min(n, 1+s.luck.IntN(w.Segment))
		}
		if now := time.Now(); s.free.Before(now) {
			s.free = now
		}
		if w.Rate > 0 {
			s.free = s.free.Add(time.Duration(n) * time.Second / time.Duration(w.Rate))
		}
		due := s.free.Add(w.MinDelay)
		if spread := w.MaxDelay - w.MinDelay; spread > 0 {
			due = due.Add(time.Duration(s.luck.Int64N(int64(spread) + 1)))
		}
		if due.Before(s.last) {
			due = s.last
		}
		s.last = due
		s.sent = append(s.sent, segment{k, slices.Clone(b[:n]), due})
		s.taken += n
		b = b[n:]
	}
	s.pump()
}

// pump lets arrive what is due, unless something holds it back.
func (s *stream) pump() {
	for len(s.sent) > 0 {
		w, due := s.way(), s.sent[0].due
		if w.until.After(due) {
			due = w.until
		}
		if w.cut || s.to.host().off {
			return
		}
		if wait := time.Until(due); wait > 0 {
			if s.timer != nil {
				s.timer.Stop()
			}
			s.timer = time.AfterFunc(wait, func() {
				s.net.mu.Lock()
				defer s.net.mu.Unlock()
				s.pump()
			})
			return
		}
		next := s.sent[0]
		s.sent = slices.Delete(s.sent, 0, 1)
		s.arrive(next)
	}
}

// arrive is the system of the host at the far end.
func (s *stream) arrive(g segment) {
	to := s.to
	switch g.kind {
	case syn:
		to.asked()
	case ack:
		to.ready = true
	case rst:
		to.fail(s)
	case fin:
		if to.gone {
			s.stranger()
		} else if s.err == nil {
			s.err = errEnd
		}
	case data:
		doomed := s.doom > 0 && len(g.data) >= s.doom
		if s.doom -= len(g.data); doomed {
			g.data = g.data[:len(g.data)+s.doom]
		}
		s.doom = max(s.doom, 0)
		switch {
		case to.gone || to.closed:
			s.taken -= len(g.data)
			s.stranger()
		case s.err == nil:
			s.unread = append(s.unread, g.data...)
		}
		if doomed {
			s.reset()
		}
	}
	to.wake.Broadcast()
}

// stranger answers what arrives at an end that is not there any more.
func (s *stream) stranger() {
	if s.err != errReset {
		s.err = errReset
		s.to.out.send(rst, nil)
	}
}

// reset breaks the connection at both ends.
func (s *stream) reset() {
	s.to.fail(s)
	s.from.fail(s.from.in)
}

// newStream returns one of a connection that is the number-th between two hosts.
func (n *Network) newStream(from, to *conn, number uint64) *stream {
	a, b := from.host().addr.As16(), to.host().addr.As16()
	salt := uint64(0)
	for _, x := range append(a[:], b[:]...) {
		salt = salt*1099511628211 + uint64(x)
	}
	return &stream{net: n, from: from, to: to, luck: rand.New(rand.NewPCG(n.seed^salt, number))}
}

// tcp returns an address as package net does.
func (h *Host) tcp(port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(h.addr, port))
}
