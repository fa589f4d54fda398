// Package lend serves clients at a member: it drives the member's ends of their sessions, see
// package clientsession, and takes locks for them.
package lend

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/clock"
)

// Config has what a Server lends locks with, and its limits.
type Config struct {
	Listeners []net.Listener
	Length    time.Duration // S
	Most      int           // sessions
	Allow     func(conn net.Conn, client, lock string) error

	// Take takes a lock. The error is an ErrClosing if this member closes.
	Take func(ctx context.Context, lock string, try bool) (Lent, error)

	// Left is how long this member may surely hold locks, in nanoseconds. Lapsed returns a
	// channel that is closed when it has lost all those that it holds now, before Left
	// tells of a later lease.
	Left   func() int64
	Lapsed func() <-chan struct{}
	Ended  <-chan struct{} // this member closes
}

// A Lent is a lock that was taken for a client.
type Lent interface {
	Fence() uint64

	// Return gives the lock back. If the member has lost it, it does not: then the member gives
	// it back by itself, when the clients have noticed.
	Return(lost bool)
}

// The errors of Take that are told apart.
var (
	ErrClosing = errors.New("the member closes")
	ErrBusy    = errors.New("the lock is busy")
)

const (
	// A connection has so long for its hello, and is given up if it takes nothing for so long.
	patience = 5 * time.Second

	// What waits for a connection that takes nothing.
	backlog = 64 << 10

	// Connections that have no session.
	strangers = 256
)

// A Server serves clients.
type Server struct {
	cfg     Config
	clock   *clock.Clock
	done    chan struct{}
	running sync.WaitGroup

	mu       sync.Mutex // before that of a session
	closed   bool
	leaving  bool
	sessions map[string]*session
	conns    map[net.Conn]bool
}

// New begins to serve.
func New(cfg Config) *Server {
	s := &Server{
		cfg: cfg, clock: clock.New(), done: make(chan struct{}),
		sessions: make(map[string]*session), conns: make(map[net.Conn]bool),
	}
	for _, l := range cfg.Listeners {
		s.running.Go(func() { s.accept(l) })
	}
	s.running.Go(s.watch)
	return s
}

func (s *Server) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		switch {
		case err == nil:
			if s.enter(nc) {
				s.running.Go(func() { s.serve(nc) })
			}
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
			select {
			case <-s.done:
				return
			case <-time.After(patience / 50):
			}
		}
	}
}

func (s *Server) enter(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || len(s.conns) >= s.cfg.Most+strangers {
		nc.Close()
		return false
	}
	s.conns[nc] = true
	return true
}

func (s *Server) exit(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, nc)
}

// watch ends the sessions when this member loses its locks, and tells the clients to leave when
// it closes.
func (s *Server) watch() {
	ended := s.cfg.Ended
	for {
		lapsed := s.cfg.Lapsed()
		for _, t := range s.all() {
			t.input(nil) // it may have lapsed before
		}
		select {
		case <-lapsed:
		case <-ended:
			ended = nil
			s.mu.Lock()
			s.leaving = true
			s.mu.Unlock()
			for _, t := range s.all() {
				t.input(func(*clientsession.Member, int64) { t.m.Close() })
			}
		case <-s.done:
			return
		}
	}
}

func (s *Server) all() (list []*session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.sessions {
		list = append(list, t)
	}
	return list
}

func (s *Server) forget(t *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sessions[t.id] == t {
		delete(s.sessions, t.id)
	}
}

// serve serves a connection.
func (s *Server) serve(nc net.Conn) {
	defer s.exit(nc)
	c, r := &conn{nc: nc}, clientlink.NewReader(nc)
	t := s.greet(c, r)
	for t != nil {
		msg, err := r.Read()
		if err != nil || msg.Kind >= clientsession.Confirm || msg.Kind == clientsession.Hello || !t.handle(c, msg) {
			t.leave(c)
			return
		}
	}
}

// greet takes the hello, and returns the session. It is nil if there is none.
func (s *Server) greet(c *conn, r *clientlink.Reader) *session {
	_ = c.nc.SetDeadline(time.Now().Add(patience))
	hello, err := r.Read()
	if err != nil || hello.Kind != clientsession.Hello {
		return nil
	}
	t, over := s.attach(c, hello)
	if t == nil {
		over.Kind = clientsession.Over
		_, _ = c.nc.Write(clientlink.Append(nil, &over))
		return nil
	}
	_ = c.nc.SetReadDeadline(time.Time{})
	if !t.handle(c, hello) {
		t.leave(c)
		return nil
	}
	return t
}

// attach finds or begins the session of a hello, or says why there is none.
func (s *Server) attach(c *conn, hello *clientsession.Message) (t *session, over clientsession.Message) {
	if err := s.cfg.Allow(c.nc, hello.Name, ""); err != nil {
		return nil, clientsession.Message{Code: clientsession.Forbidden, Text: err.Error()}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t = s.sessions[hello.Session]
	switch {
	case t != nil:
	case !hello.Fresh:
		return nil, clientsession.Message{Code: clientsession.Unknown, Text: "the member does not know the session, or not any more"}
	case s.leaving:
		return nil, clientsession.Message{Code: clientsession.Unknown, Text: "the member closes"}
	case len(s.sessions) >= s.cfg.Most:
		return nil, clientsession.Message{Code: clientsession.Full, Text: "the member serves as many clients as it may"}
	default:
		t = s.begin(hello)
		s.sessions[t.id] = t
	}
	if !t.take(c, hello.Number) {
		return nil, clientsession.Message{Code: clientsession.Unknown, Text: "the session has a newer connection"}
	}
	return t, over
}

// Close ends all connections and waits for all goroutines. Locks that clients still hold are
// not given back: to the others this member has crashed.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed, s.leaving = true, true
	close(s.done)
	for _, l := range s.cfg.Listeners {
		_ = l.Close()
	}
	for nc := range s.conns {
		nc.Close()
	}
	s.mu.Unlock()
	for _, t := range s.all() {
		t.abandon()
	}
	s.running.Wait()
}

// A Status is how a session stands, as a node.ClientStatus says.
type Status struct {
	Name, Address   string
	Holds, WaitsFor []string
	Remaining       time.Duration
}

// Status returns the sessions, by the names of the clients.
func (s *Server) Status() (list []Status) {
	for _, t := range s.all() {
		list = append(list, t.status())
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}
