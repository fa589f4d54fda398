package lend

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/clientlink"
	"github.com/dmutex/dmutex/internal/clientsession"
)

// A member is all that a Server needs of one.
type member struct {
	*Server
	t      *testing.T
	calls  chan net.Conn
	closed chan struct{}
	once   sync.Once

	take     func(ctx context.Context) (Lent, error)
	lapsed   chan struct{}
	returned []bool // lost or not
}

func (m *member) Accept() (net.Conn, error) {
	select {
	case nc := <-m.calls:
		return nc, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}
func (m *member) Addr() net.Addr { return nil }
func (m *member) Close() error   { m.once.Do(func() { close(m.closed) }); return nil }

func (m *member) Fence() uint64    { return 7 }
func (m *member) Return(lost bool) { m.returned = append(m.returned, lost) }

// serve runs the test with a Server, in a bubble.
func serve(t *testing.T, test func(m *member)) {
	synctest.Test(t, func(t *testing.T) {
		m := &member{t: t, calls: make(chan net.Conn), closed: make(chan struct{}), lapsed: make(chan struct{})}
		m.take = func(context.Context) (Lent, error) { return m, nil }
		m.Server = New(Config{
			Listeners: []net.Listener{m}, Length: time.Minute, Most: 10,
			Allow:  func(net.Conn, string, string) error { return nil },
			Take:   func(ctx context.Context, _ string, _ bool) (Lent, error) { return m.take(ctx) },
			Left:   func() int64 { return int64(time.Minute) },
			Lapsed: func() <-chan struct{} { return m.lapsed },
			Ended:  make(chan struct{}),
		})
		defer m.Server.Close()
		test(m)
	})
}

// A caller is a client's end of a connection.
type caller struct {
	net.Conn
	m *member
	r *clientlink.Reader
}

func (m *member) call() *caller {
	near, far := net.Pipe()
	m.calls <- far
	return &caller{near, m, clientlink.NewReader(near)}
}

func (c *caller) say(msg clientsession.Message) {
	_, err := c.Write(clientlink.Append(nil, &msg))
	require.NoError(c.m.t, err)
}

func (c *caller) hear(kind clientsession.Kind) clientsession.Message {
	msg, err := c.r.Read()
	require.NoError(c.m.t, err)
	require.Equal(c.m.t, kind, msg.Kind)
	return *msg
}

func (m *member) begin() *caller {
	c := m.call()
	c.say(clientsession.Message{Kind: clientsession.Hello, Session: "s", Name: "n", Fresh: true})
	c.hear(clientsession.Confirm)
	return c
}

// What a client gives back is free at once. What the member has lost is not: the client may
// hold it until it notices.
func TestReturn(t *testing.T) {
	serve(t, func(m *member) {
		c := m.begin()
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 1, Lock: "l"})
		require.Equal(t, uint64(7), c.hear(clientsession.Granted).Fence)
		c.say(clientsession.Message{Kind: clientsession.Drop, Number: 1})
		synctest.Wait()
		require.Equal(t, []bool{false}, m.returned)
		c.say(clientsession.Message{Kind: clientsession.Ask, Number: 2, Lock: "l"})
		c.hear(clientsession.Granted)
		lapsed := m.lapsed
		m.lapsed = make(chan struct{})
		close(lapsed)
		require.Equal(t, clientsession.Lapsed, c.hear(clientsession.Over).Code)
		synctest.Wait()
		require.Equal(t, []bool{false, true}, m.returned)
		require.Empty(t, m.Status())
	})
}
