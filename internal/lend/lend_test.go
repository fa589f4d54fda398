package lend

import (
	"errors"
	"io"
	"math"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/internal/protocol"
	"github.com/dmutex/dmutex/lock"
)

// A member is the part of a member that a Server needs.
type member struct {
	*Server
	t      *testing.T
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once

	allow    func(name, lock string) error
	take     func() error
	failing  atomic.Int32 // how many calls of Accept fail
	ended    chan struct{}
	lapsed   chan struct{}
	why      atomic.Pointer[error] // why this member closes
	returned []error

	hears sync.Mutex // guards unmet
	unmet []string
	idle  string // why this member grants nothing
}

func (m *member) Accept() (net.Conn, error) {
	if m.failing.Load() > 0 {
		m.failing.Add(-1)
		return nil, errors.New("too many open files")
	}
	select {
	case nc := <-m.calls:
		return nc, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}
func (m *member) Addr() net.Addr { return nil }
func (m *member) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }

func (m *member) give(lost error) { m.returned = append(m.returned, lost) }

// lapse lets the member lose its locks.
func (m *member) lapse() {
	lapsed := m.lapsed
	m.lapsed = make(chan struct{})
	close(lapsed)
}

// serve runs the test with a Server, in a bubble.
func serve(t *testing.T, test func(m *member)) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{t: t, calls: make(chan net.Conn), closed: make(chan struct{}), lapsed: make(chan struct{}), ended: make(chan struct{})}
		m.why.Store(new(error))
		m.allow = func(string, string) error { return nil }
		m.take = func() error { return nil }
		m.Server = New(Config{
			Listeners: []net.Listener{m}, Length: time.Minute, Most: 10,
			Allow: func(_ net.Conn, name, lock string, _ bool) error { return m.allow(name, lock) },
			Unmet: func(_ net.Addr, why error) {
				m.hears.Lock()
				defer m.hears.Unlock()
				m.unmet = append(m.unmet, why.Error())
			},
			Take: func(_ Want, done func(Taken, error)) Stop {
				go func() {
					if err := m.take(); err != nil {
						done(Taken{}, err)
					} else {
						done(Taken{Fence: 7, Node: 1, Stop: m.give}, nil)
					}
				}()
				return func(error) {}
			},
			Busy:   func(lock string) (string, bool) { return "somebody has " + lock, true },
			Idle:   func() string { return m.idle },
			Left:   func() time.Duration { return time.Minute },
			Lapsed: func() <-chan struct{} { return m.lapsed },
			Ended:  m.ended,
			Why:    func() error { return *m.why.Load() },
		})
		defer m.Server.Close()
		test(m)
	})
}

// left returns how many connections belong to no session.
func (m *member) left() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loose)
}

// A caller is a client's side of a connection.
type caller struct {
	*clientlink.Conn
	m *member
}

func (m *member) call() *caller {
	near, far := net.Pipe()
	m.calls <- far
	return &caller{clientlink.New(near, 1000), m}
}

func (c *caller) say(msg clientsession.Message) {
	c.Send(msg)
}

func (c *caller) hear(kind clientsession.Kind) clientsession.Message {
	msg, err := c.Read()
	require.NoError(c.m.t, err)
	require.Equal(c.m.t, kind, msg.Kind)
	return *msg
}

// greet calls, and says hello: the first time with the number 1.
func (m *member) greet(session string, number uint64) *caller {
	c := m.call()
	c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: number, Session: session, Name: "n", Fresh: number == 1})
	return c
}

func (m *member) begin() *caller {
	c := m.greet("s", 1)
	c.hear(clientsession.Confirm)
	return c
}

// take asks for a lock, and hears that it is granted.
func (c *caller) take(number uint64) {
	c.say(clientsession.Message{Kind: clientsession.Ask, Number: number, Lock: "l"})
	c.hear(clientsession.Granted)
}

// beat has the session confirmed.
func (c *caller) beat() clientsession.Message {
	c.say(clientsession.Message{Kind: clientsession.Beat})
	return c.hear(clientsession.Confirm)
}

// A confirm says why the member grants nothing.
func TestWhyIdle(t *testing.T) {
	serve(t, func(m *member) {
		m.idle = "waiting for members 2"
		c := m.greet("s", 1)
		require.Equal(t, m.idle, c.hear(clientsession.Confirm).Text)
		m.idle = ""
		c.say(clientsession.Message{Kind: clientsession.Beat})
		require.Empty(t, c.hear(clientsession.Confirm).Text)
	})
}

// A client is served if it shares a version of the protocol with the member.
func TestVersions(t *testing.T) {
	serve(t, func(m *member) {
		hello := clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Versions{Oldest: 1, Newest: 2}, Number: 1, Session: "s", Name: "n", Fresh: true}
		c := m.call()
		c.say(hello)
		c.hear(clientsession.Confirm)
		c = m.call()
		hello.Speaks.Oldest, hello.Session = 2, "t"
		c.say(hello)
		over := c.hear(clientsession.Over)
		require.Equal(t, clientsession.Failed, over.Code)
		require.Contains(t, over.Text, "the client speaks versions 2 to 2 of the protocol, and this node versions 1 to 1: ")
	})
}

// A lock that a client gives back is free at once. A lock that the member has lost is not: the
// client may still hold it until it notices.
func TestReturn(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		require.Equal(t, uint64(7), c.hear(clientsession.Granted).Fence)
		c.say(clientsession.Message{Kind: clientsession.Drop, Number: 1})
		synctest.Wait()
		require.Equal(t, []error{nil}, m.returned)
		c.take(2)
		m.lapse()
		require.Equal(t, clientsession.Lapsed, c.hear(clientsession.Over).Code)
		synctest.Wait()
		require.Len(t, m.returned, 2)
		require.NoError(t, m.returned[0])
		require.ErrorContains(t, m.returned[1], "is over")
		require.Empty(t, m.Status())
		_, err := c.Read()
		require.ErrorIs(t, err, io.EOF)
	})
}

// The clients learn at once that the member has lost its locks, and that it closes.
func TestAtOnce(t *testing.T) {
	serve(t, func(m *member) {
		begin := time.Now()
		c := m.begin()
		c.take(1)
		closes := errors.New("the member closes")
		m.why.Store(&closes)
		close(m.ended)
		c.hear(clientsession.Leave)
		m.lapse()
		c.hear(clientsession.Over)
		require.Zero(t, time.Since(begin))
		require.Equal(t, uint64(1), m.Lost.Load())
		m.why.Store(new(error))
		c = m.greet("t", 1)
		c.hear(clientsession.Confirm)
		c.say(clientsession.Message{Kind: clientsession.Bye})
		c.hear(clientsession.Over)
		require.Equal(t, uint64(1), m.Lost.Load(), "the client has ended it")
	})
}

// A connection that fails before a hello is reported and counted, but not one that ends or says nothing.
func TestUnmet(t *testing.T) {
	serve(t, func(m *member) {
		for _, says := range []string{"\x16\x03\x01\x02", "GET / HTTP/1.1", "", "\x00", "silent"} {
			near, far := net.Pipe()
			m.calls <- far
			if says != "silent" {
				_, _ = near.Write([]byte(says))
				synctest.Wait()
				near.Close()
			}
			time.Sleep(time.Minute)
		}
		require.Equal(t, []string{
			"dmutex: peer's mistake: the other side speaks TLS, and this one does not",
			`dmutex: peer's mistake: what the other side says begins with "GE": it is no client or member`,
		}, m.unmet)
		require.EqualValues(t, 2, m.Refused.Load())
	})
}

// A listener that fails for a while is asked again, ten times a second.
func TestAcceptFails(t *testing.T) {
	serve(t, func(m *member) {
		m.failing.Store(3)
		begin := time.Now()
		m.call() // Accept may wait for it already
		m.begin()
		require.Equal(t, 300*time.Millisecond, time.Since(begin))
	})
}

// A client that says hello keeps its connection, also if it then says nothing for some time.
func TestIdle(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		time.Sleep(30 * time.Second)
		c.beat()
	})
}

// The server counts clients and requests that are not allowed, and clients above the most, but no
// lock that is busy. Clients up to the most are served.
func TestRefusals(t *testing.T) {
	serve(t, func(m *member) {
		m.allow = func(name, lock string) error {
			if name == "stranger" || lock == "secret" {
				return errors.New("no")
			}
			return nil
		}
		hello := func(session, name string) *caller {
			c := m.call()
			c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: session, Name: name, Fresh: true})
			return c
		}
		require.Equal(t, clientsession.Forbidden, hello("x", "stranger").hear(clientsession.Over).Code)
		require.Equal(t, uint64(1), m.Refused.Load())
		var c *caller
		for i := range 10 {
			c = hello(string(rune('a'+i)), "n")
			c.hear(clientsession.Confirm)
		}
		require.Equal(t, clientsession.Full, hello("k", "n").hear(clientsession.Over).Code)
		require.Equal(t, uint64(2), m.Refused.Load())
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "secret"})
		require.Equal(t, clientsession.Forbidden, c.hear(clientsession.Refused).Code)
		require.Equal(t, uint64(3), m.Refused.Load())
		m.take = func() error { return lock.ErrBusy }
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 2, Lock: "l", Try: true})
		require.Equal(t, clientsession.Busy, c.hear(clientsession.Refused).Code)
		require.Equal(t, uint64(3), m.Refused.Load())
	})
}

// A session that is not heard runs out after D, and what it had is given back as lost. A beat puts
// that off.
func TestRunsOut(t *testing.T) {
	serve(t, func(m *member) {
		begin := time.Now()
		c := m.begin()
		c.take(1)
		time.Sleep(30 * time.Second)
		c.beat()
		require.Equal(t, clientsession.Unknown, c.hear(clientsession.Over).Code)
		require.Equal(t, 30*time.Second+time.Duration(leases.Drain(int64(time.Minute))), time.Since(begin))
		synctest.Wait()
		require.Len(t, m.returned, 1)
		require.EqualError(t, m.returned[0], `the session of client "n" is over`)
		require.Equal(t, uint64(1), m.Lost.Load())
	})
}

// A request that fails is refused, and the client learns why.
func TestFailed(t *testing.T) {
	serve(t, func(m *member) {
		m.take = func() error { return errors.New("why") }
		c := m.begin()
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		refused := c.hear(clientsession.Refused)
		require.Equal(t, clientsession.Failed, refused.Code)
		require.Equal(t, "why", refused.Text)
	})
}

// The status has the clients by their names.
func TestStatusInOrder(t *testing.T) {
	serve(t, func(m *member) {
		for i, name := range []string{"c", "a", "b"} {
			c := m.call()
			c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: string(rune('1' + i)), Name: name, Fresh: true})
			c.hear(clientsession.Confirm)
		}
		var names []string
		for _, st := range m.Status() {
			names = append(names, st.Name)
			require.Equal(t, time.Duration(leases.Drain(int64(time.Minute))), st.Remaining)
		}
		require.Equal(t, []string{"a", "b", "c"}, names)
	})
}

// A connection begins with a hello and has no other. A message out of turn ends only the connection.
func TestOneHello(t *testing.T) {
	serve(t, func(m *member) {
		ends := func(c *caller, msg clientsession.Message) {
			c.say(msg)
			_, err := c.Read()
			require.ErrorIs(t, err, io.EOF)
		}
		ends(m.call(), clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		ends(m.call(), clientsession.Message{Kind: clientsession.Confirm})
		require.Empty(t, m.Status())
		ends(m.begin(), clientsession.Message{Kind: clientsession.Confirm})
		again := m.greet("s", 2)
		again.hear(clientsession.Confirm)
		again.say(clientsession.Message{Kind: clientsession.Bye})
		again.hear(clientsession.Over)
		c := m.begin()
		c.take(1)
		require.NotEmpty(t, m.Status()[0].Address)
		ends(c, clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 2, Session: "s", Name: "n"})
		require.Equal(t, []string{"l"}, m.Status()[0].Holds)
		require.Empty(t, m.Status()[0].Address)
	})
}

// A hello that arrives after a newer connection of its client ends nothing, although it does
// not name the client's later requests.
func TestStaleHello(t *testing.T) {
	serve(t, func(m *member) {
		m.begin()
		slow := make(chan struct{})
		m.allow = func(string, string) error { <-slow; return nil }
		old := m.greet("s", 2)
		synctest.Wait()
		m.allow = func(string, string) error { return nil }
		c := m.greet("s", 3)
		c.hear(clientsession.Confirm)
		c.take(1)
		close(slow)
		old.hear(clientsession.Over)
		synctest.Wait()
		require.Empty(t, m.returned)
		c.beat()
	})
}

// A request on an old connection does not count if it is handled after the hello of a newer one.
func TestStaleAsk(t *testing.T) {
	serve(t, func(m *member) {
		old, slow := m.begin(), make(chan struct{})
		m.allow = func(_, lock string) error {
			if lock != "" {
				<-slow
			}
			return nil
		}
		old.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		synctest.Wait()
		c := m.greet("s", 2)
		c.hear(clientsession.Confirm)
		close(slow)
		synctest.Wait()
		require.Empty(t, m.sessions["s"].takes)
	})
}

// A late grant to a session that is over is given back. A new session of the same name goes on.
func TestSameName(t *testing.T) {
	serve(t, func(m *member) {
		taken := make(chan struct{})
		m.take = func() error { <-taken; return nil }
		c := m.begin()
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		synctest.Wait()
		c.say(clientsession.Message{Kind: clientsession.Bye})
		c.hear(clientsession.Over)
		m.begin()
		close(taken)
		synctest.Wait()
		require.Equal(t, []error{nil}, m.returned)
		require.Len(t, m.Status(), 1)
	})
}

// Close waits for a call of Allow.
func TestCloseWaits(t *testing.T) {
	serve(t, func(m *member) {
		slow, closed := make(chan struct{}), make(chan struct{})
		m.allow = func(string, string) error { <-slow; return nil }
		m.greet("s", 1)
		synctest.Wait()
		go func() {
			m.Server.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close does not wait")
		default:
		}
		close(slow)
		<-closed
	})
}

// Locks that clients hold when the Server closes are not given back, even when sessions run out.
func TestCloseGivesNothingBack(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		c.take(1)
		m.Server.Close()
		time.Sleep(time.Hour)
		require.Empty(t, m.returned)
	})
}

// A request that was allowed stays allowed when the client repeats it on another connection.
// If it were refused, the client would forget it while the member goes on with it.
func TestAllowedOnce(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		ask := clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"}
		c.say(ask)
		c.hear(clientsession.Granted)
		m.allow = func(_, lock string) error {
			if lock != "" {
				return errors.New("not any more")
			}
			return nil
		}
		c = m.call()
		c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 2, Session: "s", Name: "n", Wants: []uint64{1}})
		c.hear(clientsession.Confirm)
		c.say(ask)
		c.hear(clientsession.Granted)
		ask.Number = 2
		c.say(ask)
		require.Equal(t, "not any more", c.hear(clientsession.Refused).Text)
	})
}

// A session keeps nothing of requests that are refused.
func TestRefusedIsForgotten(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		for number := range uint64(10) {
			m.take = func() error { return lock.ErrBusy }
			c.say(clientsession.Message{Kind: clientsession.Ask, Number: number, Lock: "l", Try: true})
			c.hear(clientsession.Refused)
		}
		synctest.Wait()
		require.Empty(t, m.sessions["s"].takes)
	})
}

// Silent strangers keep no client out, however many they are, and cost little.
func TestStrangers(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		begin := time.Now()
		for range 1000 {
			m.call()
		}
		synctest.Wait()
		require.Equal(t, 10+strangers, m.left())
		c.beat()
		again := m.call()
		synctest.Wait()
		again.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 2, Session: "s", Name: "n"})
		again.hear(clientsession.Confirm)
		require.Zero(t, time.Since(begin))
		time.Sleep(clientlink.Patience)
		synctest.Wait()
		require.Zero(t, m.left())
	})
}

// An inbox is a connection over NATS.
type inbox struct {
	net.Conn
	address string
}

func (c inbox) RemoteAddr() net.Addr { return c }
func (inbox) Network() string        { return "nats" }
func (c inbox) String() string       { return c.address }

// A user of a NATS server gets at most half of the sessions, and the others get theirs.
func TestOwners(t *testing.T) {
	serve(t, func(m *member) {
		begin := func(session, address string) (answer *clientsession.Message, c *caller) {
			near, far := net.Pipe()
			m.calls <- inbox{far, address}
			c = &caller{clientlink.New(near, 1000), m}
			c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: session, Name: "n", Fresh: true})
			answer, err := c.Read()
			require.NoError(t, err)
			return answer, c
		}
		var last *caller
		for _, session := range []string{"1", "2", "3", "4", "5"} {
			answer, c := begin(session, "_INBOX.alice."+session)
			require.Equal(t, clientsession.Confirm, answer.Kind)
			last = c
		}
		answer, _ := begin("6", "_INBOX.alice.6")
		require.Equal(t, clientsession.Over, answer.Kind)
		require.Equal(t, clientsession.Full, answer.Code)
		require.Equal(t, "the member serves as many clients with inboxes of alice as it may: half of all", answer.Text)
		answer, _ = begin("7", "_INBOX.bob.6")
		require.Equal(t, clientsession.Confirm, answer.Kind)
		last.say(clientsession.Message{Kind: clientsession.Bye})
		synctest.Wait()
		answer, _ = begin("8", "_INBOX.alice.6")
		require.Equal(t, clientsession.Confirm, answer.Kind)
	})
}

// Any number of sessions may be allowed, also the highest.
func TestMost(t *testing.T) {
	serve(t, func(m *member) {
		m.cfg.Most = math.MaxInt
		m.begin()
		near, far := net.Pipe()
		m.calls <- inbox{far, "_INBOX.alice.1"}
		c := &caller{clientlink.New(near, 1000), m}
		c.say(clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: "t", Name: "n", Fresh: true})
		c.hear(clientsession.Confirm)
	})
}

// A stubborn is a connection without deadlines that waits in Close.
type stubborn struct {
	net.Conn
	closed chan struct{}
}

func (stubborn) SetReadDeadline(time.Time) error { return errors.New("no deadlines") }
func (c stubborn) Close() error                  { <-c.closed; return c.Conn.Close() }

// A connection that is slow to close delays nobody.
func TestSlowToClose(t *testing.T) {
	serve(t, func(m *member) {
		near, far := net.Pipe()
		old := stubborn{far, make(chan struct{})}
		m.calls <- old
		c := &caller{clientlink.New(near, 1000), m}
		hello := clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Number: 1, Session: "s", Name: "n", Fresh: true}
		c.say(hello)
		c.hear(clientsession.Confirm)
		c = m.call()
		hello.Number = 2
		c.say(hello)
		c.hear(clientsession.Confirm)
		close(old.closed)
	})
}

// A closing member lends nothing and refuses no request: its clients ask elsewhere. It gives back a
// lock that it is granted at that moment. It begins no session.
func TestOutcomeWhileClosing(t *testing.T) {
	closes := errors.New("the member closes")
	for _, outcome := range []error{nil, lock.ErrBusy, closes} {
		serve(t, func(m *member) {
			taken := make(chan struct{})
			m.take = func() error { <-taken; return outcome }
			c := m.begin()
			c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
			synctest.Wait()
			m.why.Store(&closes)
			close(taken)
			c.hear(clientsession.Leave)
			c.beat()
			synctest.Wait()
			require.Len(t, m.returned, map[bool]int{true: 1}[outcome == nil])
			require.Empty(t, m.sessions["s"].takes)
			c = m.greet("t", 1)
			require.Equal(t, "the member closes", c.hear(clientsession.Over).Text)
		})
	}
}

// A client may reuse the number of a request that it has dropped. A late grant to the dropped request
// is given back.
func TestNumberAgain(t *testing.T) {
	serve(t, func(m *member) {
		taken := make(chan struct{})
		m.take = func() error { <-taken; return nil }
		c := m.begin()
		ask := clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"}
		c.say(ask)
		c.say(clientsession.Message{Kind: clientsession.Drop, Number: 1})
		require.Equal(t, "somebody has l", c.hear(clientsession.Refused).Text)
		synctest.Wait()
		next := make(chan struct{})
		m.take = func() error { <-next; return nil }
		c.say(ask)
		synctest.Wait()
		close(taken)
		synctest.Wait()
		require.Equal(t, []error{nil}, m.returned)
		close(next)
		c.hear(clientsession.Granted)
		c.say(clientsession.Message{Kind: clientsession.Drop, Number: 1})
		synctest.Wait()
		require.Equal(t, []error{nil, nil}, m.returned)
	})
}

// Old connections of a session count as those of strangers while they are written to. So a client that
// connects again and again, and reads nothing, costs little.
func TestLeftConnections(t *testing.T) {
	serve(t, func(m *member) {
		begin := time.Now()
		hello := clientsession.Message{Kind: clientsession.Hello, Speaks: protocol.Spoken, Session: "s", Name: "n", Fresh: true}
		for range 1000 {
			hello.Number++
			m.call().say(hello)
			synctest.Wait()
		}
		require.Equal(t, 10+strangers-1, m.left(), "the session has one connection more")
		require.Zero(t, time.Since(begin))
		time.Sleep(clientlink.Patience)
		synctest.Wait()
		require.Zero(t, m.left())
	})
}
