// Package lend serves clients at a member: it drives the member's sides of their sessions, see
// package clientsession, and takes locks for them.
package lend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/clock"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/lock"
)

// Config has what a Server lends locks with, and its limits.
type Config struct {
	Listeners []net.Listener
	Length    time.Duration // S
	Most      int           // sessions
	Allow     func(conn net.Conn, client, lock string, shared bool) error
	Unmet     func(from net.Addr, why error) // a connection has failed before a client said hello

	// Take begins to take a lock, and calls done once, in a goroutine of its own. The Stop that it returns makes
	// it call done soon.
	Take func(want Want, done func(Taken, error)) Stop

	// Busy says who holds a lock, or for what else its request waits: then it is not known to be busy.
	Busy func(lock string) (text string, busy bool)

	// Idle says why this member grants nothing now, and is empty as a rule.
	Idle func() string

	// Left is how long this member may surely hold locks. Lapsed returns a
	// channel that is closed when it has lost all those that it holds now, before Left
	// tells of a later lease.
	Left   func() time.Duration
	Lapsed func() <-chan struct{}

	// Ended is closed when this member closes, and from then on Why says so. No Take fails before
	// because the member closes.
	Ended <-chan struct{}
	Why   func() error
}

// A Want is what a session asks for.
type Want struct {
	Client      string // its name, for people
	Session     string
	Lock        string
	Try, Shares bool

	Of  []uint64 // the members that a claim names
	Via string   // the session by which the client holds the lock that it claims
}

// A Taken is a lock that was taken.
type Taken struct {
	Fence, Node uint64 // Node is the member's number
	Stop        Stop   // gives the lock back
	Moved       func() // the client that has claimed the lock holds it by this member, and by no other one
}

// A Stop ends what Take began: nil because the client said so, or for the reason given. Then it gives
// nothing back before an operation on the record, sent later, has shown this life as a member.
type Stop func(lost error)

const (
	backlog   = 64 << 10 // bytes that wait for a connection that takes nothing
	strangers = 256      // connections without a session, besides one for each session that is allowed
)

// A Server serves clients.
type Server struct {
	cfg     Config
	clock   *clock.Clock
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup

	Lost    atomic.Uint64 // sessions that ended without the client's word
	Refused atomic.Uint64 // clients and requests that were not allowed, or too many, and connections that failed before a hello
	Claims  atomic.Uint64
	Moved   atomic.Uint64 // claims that were granted

	mu       sync.Mutex // guards the sessions, too
	sealed   bool
	sessions map[string]*session
	owned    map[string]int     // sessions, by owner
	loose    []*clientlink.Conn // that no session has, oldest first
}

// A session is one client here.
type session struct {
	id     string
	name   string          // of the client
	owner  string          // whom the session counts for
	lapsed <-chan struct{} // closed when this member has lost what it holds for it
	timer  *time.Timer
	m      *clientsession.Member
	conn   *clientlink.Conn // nil while there is none
	takes  map[uint64]*taking
}

// A taking is a request that is under way or granted, what stops it, and what to do when a claim has moved.
type taking struct {
	stop  Stop
	moved func()
}

// New begins to serve.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, clock: clock.New(), sessions: make(map[string]*session), owned: make(map[string]int)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for _, l := range cfg.Listeners {
		s.running.Go(func() { s.accept(l) })
	}
	s.running.Go(s.watch)
	return s
}

func (s *Server) accept(l net.Listener) {
	for s.ctx.Err() == nil {
		nc, err := l.Accept()
		switch {
		case err == nil:
			s.running.Go(func() { s.serve(nc) })
		case s.ctx.Err() == nil: // such as too many open files
			time.Sleep(s.clock.Span(clientlink.Patience / 50))
		}
	}
}

// watch lets the sessions notice when this member loses its locks, and when it closes.
func (s *Server) watch() {
	ended := s.cfg.Ended
	for {
		lapsed := s.cfg.Lapsed()
		s.mu.Lock()
		for _, t := range s.sessions {
			t.timer.Reset(0) // it may have lapsed before
		}
		s.mu.Unlock()
		select {
		case <-lapsed:
		case <-ended:
			ended = nil
		case <-s.ctx.Done():
			return
		}
	}
}

// serve serves a connection.
func (s *Server) serve(nc net.Conn) {
	defer context.AfterFunc(s.ctx, func() { _ = nc.Close() })()
	c := clientlink.New(nc, backlog)
	s.mu.Lock()
	s.loosen(c)
	s.mu.Unlock()
	_ = c.SetDeadline(time.Now().Add(s.clock.Span(clientlink.Patience)))
	var t *session
	for more := true; more; {
		msg, err := c.Read() // the first shakes hands, if there is TLS
		if t == nil {
			s.unmet(c, err)
		}
		more = err == nil && (msg.Kind < clientsession.Confirm || msg.Kind == clientsession.Leave) && (msg.Kind == clientsession.Hello) == (t == nil)
		if more && t == nil {
			t = s.greet(c, msg)
		}
		more = more && t != nil && s.handle(t, c, msg)
	}
	s.mu.Lock()
	if t != nil && t.conn == c {
		s.part(t)
	}
	s.mu.Unlock()
	_ = c.Close()
	s.mu.Lock()
	s.tie(c)
	s.mu.Unlock()
}

// unmet tells of a connection that has failed before a hello, but not of one that has only ended or said
// nothing: a port is looked at by many.
func (s *Server) unmet(c *clientlink.Conn, why error) {
	switch {
	case why == nil || errors.Is(why, io.EOF) || errors.Is(why, net.ErrClosed) || errors.Is(why, os.ErrDeadlineExceeded) || errors.Is(why, syscall.ECONNRESET):
	case s.ctx.Err() == nil:
		s.Refused.Add(1)
		s.cfg.Unmet(c.RemoteAddr(), why)
	}
}

// loosen counts a connection as one that no session has. The oldest of too many is closed, so that
// strangers, however many, cannot keep a client out. The caller has the mutex.
func (s *Server) loosen(c *clientlink.Conn) {
	if s.loose = append(s.loose, c); len(s.loose)-strangers > s.cfg.Most { // which may be the highest number
		oldest := s.loose[0].Conn
		s.running.Go(func() { _ = oldest.Close() }) // which may wait for the peer
		s.loose = slices.Delete(s.loose, 0, 1)
	}
}

// tie takes a connection from those that no session has. The caller has the mutex.
func (s *Server) tie(c *clientlink.Conn) {
	s.loose = slices.DeleteFunc(s.loose, func(other *clientlink.Conn) bool { return other == c })
}

// greet finds or begins the session of a hello, which gets this connection in the place of an older
// one. If there is none, it is nil, and the client learns why.
func (s *Server) greet(c *clientlink.Conn, hello *clientsession.Message) *session {
	over := func(code clientsession.Code, text string) *session {
		s.send(c, clientsession.Message{Kind: clientsession.Over, Code: code, Text: text})
		return nil
	}
	_ = c.SetReadDeadline(time.Time{})
	if err := s.cfg.Allow(c.Conn, hello.Name, "", false); err != nil {
		return over(clientsession.Forbidden, err.Error())
	}
	if v := protocol.Spoken; v.Common(hello.Speaks) == 0 {
		return over(clientsession.Failed, "the client speaks "+v.Differs(hello.Speaks))
	}
	who := clientlink.Owner(c.RemoteAddr())
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.sessions[hello.Session]
	switch {
	case t != nil:
	case !hello.Fresh:
		return over(clientsession.Unknown, "the member does not know the session, or not any more")
	case s.cfg.Why() != nil:
		return over(clientsession.Unknown, "the member closes")
	case len(s.sessions) >= s.cfg.Most:
		return over(clientsession.Full, "the member serves as many clients as it may")
	case who != "" && s.owned[who] >= s.cfg.Most-s.cfg.Most/2:
		return over(clientsession.Full, "the member serves as many clients with inboxes of "+who+" as it may: half of all")
	default:
		t = &session{id: hello.Session, name: hello.Name, owner: who, lapsed: s.cfg.Lapsed(), takes: make(map[uint64]*taking)}
		t.m = clientsession.NewMember(s.now(), int64(s.cfg.Length))
		t.timer = time.AfterFunc(s.clock.Span(s.cfg.Length), func() { s.input(t, nil) })
		s.sessions[t.id] = t
		s.owned[who]++
	}
	if !t.m.Newer(hello.Number) {
		return over(clientsession.Unknown, "the session has a newer connection")
	}
	s.part(t)
	s.tie(c)
	t.conn = c
	return t
}

// now is the time of the sessions: nanoseconds by the steady clock.
func (s *Server) now() int64 { return int64(s.clock.Steady().Age()) }

// handle takes a message from a connection. It returns false if the session has another.
func (s *Server) handle(t *session, c *clientlink.Conn, msg *clientsession.Message) (more bool) {
	if msg.Kind == clientsession.Ask {
		if err := s.cfg.Allow(c.Conn, t.name, msg.Lock, msg.Shares); err != nil {
			msg.Code, msg.Text = clientsession.Forbidden, err.Error()
		}
	}
	s.input(t, func(m *clientsession.Member, now, left int64) {
		if more = t.conn == c; more && !s.sealed {
			if lock := m.Awaits(msg.Number); msg.Kind == clientsession.Drop && lock != "" {
				var busy bool
				if msg.Text, busy = s.cfg.Busy(lock); !busy {
					msg.Code = clientsession.Failed
				}
			}
			m.Handle(now, left, msg)
		}
	})
	return more
}

// input gives the machine of a session an input, and does what it wants. A nil input is only the time.
func (s *Server) input(t *session, input func(m *clientsession.Member, now, left int64)) {
	var calls []func()
	defer func() {
		for _, call := range calls {
			call()
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.m.Over() || s.ctx.Err() != nil {
		return
	}
	now, left := s.now(), int64(s.cfg.Left()) // first: what is lost is noticed before there is a later lease
	select {
	case <-t.lapsed:
		t.m.End(clientsession.Lapsed, "the member has lost its locks")
		s.Lost.Add(1)
	default:
		if t.m.Tick(now); s.cfg.Why() != nil {
			t.m.Close()
		}
		if t.m.Over() {
			s.Lost.Add(1)
		}
		if input != nil && !t.m.Over() {
			input(t.m, now, left)
		}
	}
	out, orders := t.m.Output()
	if t.conn != nil {
		s.send(t.conn, out...)
	}
	for _, o := range orders {
		switch o.Kind {
		case clientsession.Ask:
			s.begin(t, o)
			continue
		case clientsession.Moved:
			calls = append(calls, t.takes[o.Number].moved)
			continue
		}
		stop, lost := t.takes[o.Number].stop, error(nil)
		if o.Code != clientsession.None {
			lost = fmt.Errorf("the session of client %q is over", t.name)
		}
		calls = append(calls, func() { stop(lost) })
		delete(t.takes, o.Number)
	}
	if !t.m.Over() {
		t.timer.Reset(s.clock.Span(time.Duration(t.m.Deadline() - now)))
		return
	}
	t.timer.Stop()
	delete(s.sessions, t.id)
	if s.owned[t.owner]--; s.owned[t.owner] == 0 {
		delete(s.owned, t.owner)
	}
	s.part(t)
}

// part ends the connection of a session. The caller has the mutex.
func (s *Server) part(t *session) {
	if t.conn != nil {
		t.conn.Hurry()
		s.loosen(t.conn)
		t.conn = nil
	}
}

// begin takes a lock. The caller has the mutex.
func (s *Server) begin(t *session, o clientsession.Message) {
	g := new(taking)
	t.takes[o.Number] = g
	claims := uint64(min(len(o.Of), 1))
	s.Claims.Add(claims)
	s.running.Add(1)
	want := Want{Client: t.name, Session: t.id, Lock: o.Lock, Try: o.Try, Shares: o.Shares, Of: o.Of, Via: o.Session}
	g.stop = s.cfg.Take(want, func(taken Taken, err error) {
		stop := taken.Stop
		defer s.running.Done()
		s.input(t, func(m *clientsession.Member, _, _ int64) {
			switch {
			case t.takes[o.Number] != g || m.Awaits(o.Number) == "": // it was dropped, perhaps just now because this member closes
			case err == nil:
				m.Granted(o.Number, taken.Fence, taken.Node)
				s.Moved.Add(claims)
				g.stop, g.moved, stop = stop, taken.Moved, nil
			case errors.Is(err, lock.ErrBusy):
				text, _ := s.cfg.Busy(o.Lock)
				m.Refuse(o.Number, clientsession.Busy, text)
			default:
				m.Refuse(o.Number, clientsession.Failed, err.Error())
			}
		})
		if stop != nil { // nobody wants it any more
			stop(nil)
		}
	})
}

// Seal makes the server deaf, before this member says what it has lent: a release that came after that would
// be too late for the others. The clients give back elsewhere what they release from then on. So Seal waits
// until those that are connected and hold something have answered that it closes, unless ctx ends first.
func (s *Server) Seal(ctx context.Context) {
	for !s.seal(ctx.Err() != nil) {
		select {
		case <-time.After(s.clock.Span(clientlink.Patience / 1000)):
		case <-ctx.Done():
		}
	}
}

func (s *Server) seal(now bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = now || !slices.ContainsFunc(slices.Collect(maps.Values(s.sessions)), func(t *session) bool { return t.conn != nil && !t.m.Settled() })
	return s.sealed
}

// Close ends all connections and waits for all goroutines. The member takes no lock any more. What
// clients still hold is not given back: to the others this member has crashed.
func (s *Server) Close() {
	s.mu.Lock()
	s.cancel()
	s.mu.Unlock()
	for _, l := range s.cfg.Listeners {
		_ = l.Close()
	}
	s.running.Wait()
}

// send sends messages, and counts what they refuse because it is not allowed, or too much. A confirm says why
// this member grants nothing now.
func (s *Server) send(c *clientlink.Conn, msgs ...clientsession.Message) {
	for i := range msgs {
		if code := msgs[i].Code; code == clientsession.Forbidden || code == clientsession.Full {
			s.Refused.Add(1)
		}
		if msgs[i].Kind == clientsession.Confirm {
			msgs[i].Text = s.cfg.Idle()
		}
	}
	c.Send(msgs...)
}

// A Status is how a session stands, as a node.ClientStatus says.
type Status struct {
	Name, Address   string
	Holds, WaitsFor []string
	Moved           []string
	Remaining       time.Duration
}

// Status returns the sessions, by the names of the clients.
func (s *Server) Status() (list []Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.sessions {
		st := Status{Name: t.name, Moved: t.m.Moved(), Remaining: time.Duration(t.m.Deadline() - s.now())}
		if st.Holds, st.WaitsFor = t.m.Locks(); t.conn != nil {
			st.Address = t.conn.RemoteAddr().String()
		}
		list = append(list, st)
	}
	slices.SortFunc(list, func(a, b Status) int { return strings.Compare(a.Name, b.Name) })
	return list
}
