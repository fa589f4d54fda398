// Package natsnet is a NATS server in memory, for simulations in a bubble of testing/synctest. Its clients are
// those of nats.go, which speak their protocol with it over connections in memory: so all that a client does by itself, such as
// to reconnect, to keep what is published meanwhile, to subscribe again, or to drop what a slow subscriber does not
// take, is what ships.
//
// The server carries core NATS: subjects with wildcards, queue groups, headers, and the word that nobody subscribes. A message
// comes at most once, and those of one client to another in order. Package integration compares it with a real server.
//
// nats.go holds a mutex while it connects and while it writes, and the time of a bubble stands still while a goroutine
// waits for a mutex. So a connection is made or refused at once, also where bytes are late, and takes all that is
// written to it, but after [Server.Wait].
package natsnet

import (
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	maxPayload = 1 << 20
	window     = 4 << 10         // what is written and has not arrived, where writing may wait
	patience   = 2 * time.Second // to connect, by default of nats.go
	maxPending = 64 << 20        // what waits for a client; one for which more does is cut off
	stale      = 4 * time.Minute // until the server leaves a client that says nothing
)

// A Server is one server, or a cluster of them that looks like one. Its methods, and those of its ways, are safe for
// concurrent use.
type Server struct {
	mu    sync.Mutex
	luck  *rand.Rand
	down  bool
	waits bool
	loses float64
	ways  []*Way
	conns []*conn // that the server has not left, in the order in which they were made
	cuts  map[[2]*Way]bool
}

// New returns a server that runs. No two may be used at once: nats.go keeps timers in a pool, and those of one bubble
// must not be used in another.
func New(seed uint64) *Server {
	runtime.GC() // which empties the pool
	runtime.GC()
	return &Server{luck: rand.New(rand.NewPCG(seed, 0)), cuts: make(map[[2]*Way]bool)}
}

// Wait lets a client wait from now on to connect and to write, as with sockets. It is for a build in which the time of a bubble
// goes on while a goroutine waits for a mutex.
func (s *Server) Wait() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = true
}

// Lose loses so much of what is carried to subscribers from now on, as where servers of a cluster meet again and again, or a
// client is too slow.
func (s *Server) Lose(rate float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loses = rate
}

// Stop ends the server: it forgets all, and refuses connections until Start.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = true
	for _, c := range slices.Clone(s.conns) {
		c.end()
	}
}

// Start starts it again.
func (s *Server) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = false
}

// Cut lets nothing get from one process to another, and the first one's server take nobody for a subscriber there: so it is
// where the servers of a cluster have lost each other.
func (s *Server) Cut(from, to *Way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[[2]*Way{from, to}] = true
}

// Partition cuts some processes from all others, both ways.
func (s *Server) Partition(part ...*Way) {
	s.mu.Lock()
	defer s.mu.Unlock()
	inside := make(map[*Way]bool)
	for _, w := range part {
		inside[w] = true
	}
	for _, from := range s.ways {
		for _, to := range s.ways {
			if inside[from] != inside[to] {
				s.cuts[[2]*Way{from, to}] = true
			}
		}
	}
}

// Heal ends all cuts between processes.
func (s *Server) Heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cuts)
}

// A Way is how one process reaches the server.
type Way struct {
	server  *Server
	luck    *rand.Rand
	delay   time.Duration // bytes are late by less than that
	refused bool          // no connection is made
	dead    bool
	out, in bool // nothing gets through in this direction
	paused  bool
	wake    *sync.Cond
	conns   []*conn // with an end that is open
}

// Way returns the way of one more process.
func (s *Server) Way() *Way {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &Way{server: s, luck: rand.New(rand.NewPCG(s.luck.Uint64(), 0)), wake: sync.NewCond(&s.mu)}
	s.ways = append(s.ways, w)
	return w
}

// Connect connects a client.
func (w *Way) Connect(options ...nats.Option) (*nats.Conn, error) {
	return nats.Connect(nats.DefaultURL, append(options, nats.InProcessServer(w))...)
}

// InProcessConn implements [nats.InProcessConnProvider].
func (w *Way) InProcessConn() (net.Conn, error) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	if w.server.waits {
		w.wait(time.Now().Add(patience), func() bool { return w.dead || w.opens() })
	}
	if w.server.down || w.dead || w.refused || !w.opens() {
		return nil, errRefused
	}
	return w.server.accept(w), nil
}

// opens reports whether the way is open in both directions. The caller has the mutex.
func (w *Way) opens() bool { return !w.out && !w.in && !w.paused }

// wait waits until it is so, or until that time if it is not zero. The caller has the mutex.
func (w *Way) wait(until time.Time, so func() bool) (is bool) {
	if !until.IsZero() && !so() {
		defer time.AfterFunc(time.Until(until), func() {
			w.server.mu.Lock()
			defer w.server.mu.Unlock()
			w.wake.Broadcast()
		}).Stop()
	}
	for !so() {
		if !until.IsZero() && !time.Now().Before(until) {
			return false
		}
		w.wake.Wait()
	}
	return true
}

// change changes the way, and lets through what nothing holds back any more.
func (w *Way) change(f func()) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	f()
	w.wake.Broadcast()
	w.conns = slices.DeleteFunc(w.conns, func(c *conn) bool { return c.err != nil && c.left })
	for _, c := range w.conns {
		c.up.pump()
		c.down.pump()
	}
}

// Delay makes all bytes late, each by less than the given time, and in order.
func (w *Way) Delay(most time.Duration) { w.change(func() { w.delay = most }) }

// Hold lets nothing get to the server, or come from it, or ends that. Neither learns of it. What was held back arrives later,
// unless the connection ends before.
func (w *Way) Hold(out, in bool) {
	w.change(func() {
		if !w.dead {
			w.out, w.in = out, in
		}
	})
}

// Pause is Hold in both directions until Resume, beside what Hold says.
func (w *Way) Pause() { w.change(func() { w.paused = true }) }

// Resume ends it.
func (w *Way) Resume() { w.change(func() { w.paused = false }) }

// Refuse lets no connection be made, or ends that.
func (w *Way) Refuse(on bool) { w.change(func() { w.refused = on }) }

// Drop ends the present connections. Both sides learn of it, and what was under way is lost.
func (w *Way) Drop() {
	w.change(func() {
		for _, c := range w.conns {
			c.end()
			c.fail(io.EOF)
		}
	})
}

// Kill ends the process for good. Its system sends what was written, and closes the connections.
func (w *Way) Kill() {
	w.change(func() {
		w.dead, w.paused = true, false
		for _, c := range w.conns {
			if c.err == nil {
				c.hangUp()
			}
		}
	})
}

// PowerOff ends the machine of the process for good. The server learns nothing of it until it has waited for long.
func (w *Way) PowerOff() {
	w.change(func() {
		w.dead, w.out, w.in = true, true, true
		for _, c := range w.conns {
			c.fail(io.EOF)
			time.AfterFunc(stale, func() {
				w.server.mu.Lock()
				defer w.server.mu.Unlock()
				c.end()
			})
		}
	})
}
