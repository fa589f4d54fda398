package lend

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
)

// A session is one client here.
type session struct {
	s      *Server
	id     string
	name   string          // of the client
	lapsed <-chan struct{} // closed when this member has lost what it holds for it
	timer  *time.Timer

	mu    sync.Mutex
	m     *clientsession.Member
	slept int64
	conn  *conn  // nil while there is none
	link  uint64 // number of the newest connection
	takes map[uint64]*taking
	gone  bool // the Server has ended: nothing is given back any more
}

// A taking is a request under way, or granted.
type taking struct {
	cancel context.CancelFunc
	lent   Lent // nil while it waits
}

// A conn is a connection of a session. Its fields are guarded by the session's mutex.
type conn struct {
	nc      net.Conn
	out     []byte
	writing bool
	last    bool // closed behind what is written
}

// begin makes a session. The caller has the mutex of the Server.
func (s *Server) begin(hello *clientsession.Message) *session {
	t := &session{s: s, id: hello.Session, name: hello.Name, lapsed: s.cfg.Lapsed(), takes: make(map[uint64]*taking)}
	now, slept := s.clock.Read()
	t.m, t.slept = clientsession.NewMember(now, int64(s.cfg.Length), clientsession.MaxRequests), slept
	t.timer = time.AfterFunc(time.Duration(t.m.Deadline()-now), t.tick)
	return t
}

// take makes a connection that of the session, in the place of another. It returns false if the
// client has made a newer one: an old hello must not end what was asked for since.
func (t *session) take(c *conn, link uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if link <= t.link {
		return false
	}
	if t.conn != nil {
		t.conn.nc.Close()
	}
	t.conn, t.link = c, link
	return true
}

// leave notes that a connection has ended.
func (t *session) leave(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conn == c {
		t.conn = nil
	}
}

// tick looks whether the session has run out.
func (t *session) tick() {
	t.input(func(m *clientsession.Member, now int64) {
		if m.Tick(now); !m.Over() {
			t.timer.Reset(time.Duration(m.Deadline() - now))
		}
	})
}

// handle takes a message from a connection. It returns false if nothing more is wanted from it.
func (t *session) handle(c *conn, msg *clientsession.Message) (more bool) {
	var refusal error
	if msg.Kind == clientsession.Ask {
		refusal = t.s.cfg.Allow(c.nc, t.name, msg.Lock)
	}
	over := t.input(func(m *clientsession.Member, now int64) {
		if more = t.conn == c; !more {
			return
		}
		if refusal != nil && !m.Asked(msg.Number) { // what was allowed once is told again
			m.Refuse(msg.Number, clientsession.Forbidden, refusal.Error())
			return
		}
		m.Handle(now, t.left(), msg)
	})
	return more && !over
}

// left is how long what is held for the client is surely held here.
func (t *session) left() int64 {
	left := t.s.cfg.Left() // first: what is lost is noticed before there is a later lease
	select {
	case <-t.lapsed:
		return 0
	default:
		return left
	}
}

// input gives the machine an input, and does what it wants. It reports whether the session is over, and
// forgets it then.
func (t *session) input(input func(m *clientsession.Member, now int64)) (over bool) {
	t.mu.Lock()
	if t.gone {
		t.mu.Unlock()
		return false
	}
	now, slept := t.s.clock.Read()
	t.m.Leapt(slept - t.slept)
	t.slept = slept
	lost := false
	select {
	case <-t.lapsed:
		lost = true
		t.m.End(clientsession.Lapsed, "the member has lost its locks")
	default:
		if input != nil && !t.m.Over() {
			input(t.m, now)
		}
	}
	out, orders := t.m.Output()
	c := t.conn
	if c != nil {
		for i := range out {
			c.out = clientlink.Append(c.out, &out[i])
		}
		if len(c.out) > backlog {
			c.nc.Close()
		}
	}
	var back []Lent
	for _, o := range orders {
		if o.Take {
			t.begin(o)
			continue
		}
		g := t.takes[o.Number]
		delete(t.takes, o.Number)
		if g.cancel(); g.lent != nil {
			back = append(back, g.lent)
		}
	}
	if over = t.m.Over(); over {
		t.timer.Stop()
		if c != nil {
			c.last = true
		}
	}
	t.mu.Unlock()
	if over {
		t.s.forget(t)
	}
	for _, lent := range back {
		lent.Return(lost)
	}
	if c != nil {
		t.flush(c)
	}
	return over
}

// begin takes a lock. The caller has the mutex.
func (t *session) begin(o clientsession.Order) {
	ctx, cancel := context.WithCancel(context.Background())
	g := &taking{cancel: cancel}
	t.takes[o.Number] = g
	t.s.running.Go(func() {
		lent, err := t.s.cfg.Take(ctx, o.Lock, o.Try)
		wanted := false
		t.input(func(m *clientsession.Member, _ int64) {
			switch {
			case t.takes[o.Number] != g || errors.Is(err, ErrClosing): // the client is told to leave
			case err == nil:
				g.lent, wanted = lent, m.Granted(o.Number, lent.Fence())
			case errors.Is(err, ErrBusy):
				m.Refuse(o.Number, clientsession.Busy, err.Error())
			default:
				m.Refuse(o.Number, clientsession.Failed, err.Error())
			}
		})
		if err == nil && !wanted {
			lent.Return(false)
		}
	})
}

// flush writes what waits for a connection, unless another goroutine does.
func (t *session) flush(c *conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c.writing {
		return
	}
	c.writing = true
	for len(c.out) > 0 {
		out := c.out
		c.out = nil
		t.mu.Unlock()
		_ = c.nc.SetWriteDeadline(time.Now().Add(patience))
		_, err := c.nc.Write(out)
		t.mu.Lock()
		if err != nil {
			c.last, c.out = true, nil
		}
	}
	c.writing = false
	if c.last {
		c.nc.Close()
	}
}

// abandon ends what is under way, and gives nothing back.
func (t *session) abandon() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = true
	t.timer.Stop()
	for _, g := range t.takes {
		g.cancel()
	}
}

func (t *session) status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	st := Status{Name: t.name, Remaining: time.Duration(t.m.Deadline() - t.s.clock.Now())}
	st.Holds, st.WaitsFor = t.m.Locks()
	if t.conn != nil {
		st.Address = t.conn.nc.RemoteAddr().String()
	}
	return st
}
