package integration

import (
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/natslink"
)

// patience is long, because only a failing test waits for so long.
const patience = 30 * time.Second

// startNATS runs a server until the test ends. Port -1 takes a free one.
func startNATS(t testing.TB, options server.Options) *server.Server {
	t.Helper()
	options.Host, options.NoLog, options.NoSigs = "127.0.0.1", true, true
	s, err := server.NewServer(&options)
	require.NoError(t, err)
	s.Start()
	require.True(t, s.ReadyForConnections(patience))
	t.Cleanup(func() { stopNATS(s) })
	return s
}

func stopNATS(s *server.Server) {
	s.Shutdown()
	s.WaitForShutdown()
}

func connect(t testing.TB, s *server.Server, options ...nats.Option) *nats.Conn {
	t.Helper()
	options = append(options,
		nats.Timeout(patience), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond), nats.ReconnectJitter(0, 0),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // its default prints
	nc, err := nats.Connect(s.ClientURL(), options...)
	require.NoError(t, err)
	t.Cleanup(nc.Close)
	return nc
}

// A place is the present address of a server. Through it, connections find the next server,
// which listens on another port, because the old port may be taken by then.
type place struct{ address atomic.Value }

func (p *place) moveIn(s *server.Server) { p.address.Store(s.Addr().String()) }

// Dial implements [nats.CustomDialer].
func (p *place) Dial(network, _ string) (net.Conn, error) {
	return net.Dial(network, p.address.Load().(string))
}

const prefix = "test.locks"

// natsLinks are links with a connection each.
func natsLinks(start func(t testing.TB) *server.Server, options func(self dmutex.NodeID) []nats.Option) linktest.Links {
	return linktest.Links{
		New: func(t *testing.T) func(dmutex.NodeID) transport.Link {
			s := start(t)
			return func(self dmutex.NodeID) transport.Link {
				l, err := natslink.New(connect(t, s, options(self)...), natslink.Config{Self: self, Prefix: prefix})
				require.NoError(t, err)
				return l
			}
		},
		Ordered: true,
		AnyNode: true,
	}
}

func open(t testing.TB) *server.Server { return startNATS(t, server.Options{Port: -1}) }

func anybody(dmutex.NodeID) []nats.Option { return nil }

// LESSONS L57, L58, L80: over NATS the link keeps the contract of all links, and it needs
// only a server without JetStream.
func TestNATSLink(t *testing.T) {
	linktest.TestLink(t, natsLinks(open, anybody))
}

// Members that come and go need only the permissions that natslink documents for them.
func TestNATSDynamicLink(t *testing.T) {
	guarded := func(t testing.TB) *server.Server {
		below := &server.SubjectPermission{Allow: []string{prefix + ".>"}}
		return startNATS(t, server.Options{Port: -1, Users: []*server.User{
			{Username: "member", Password: "secret", Permissions: &server.Permissions{Publish: below, Subscribe: below}},
		}})
	}
	member := func(dmutex.NodeID) []nats.Option { return []nats.Option{nats.UserInfo("member", "secret")} }
	linktest.TestDynamicLink(t, natsLinks(guarded, member))
}

func TestNATSLinkSession(t *testing.T) {
	linktest.TestStream(t, natsLinks(open, anybody), nil)
}

// A server that stops and starts again in the middle of the traffic costs
// frames, but no messages.
func TestNATSLinkServerRestart(t *testing.T) {
	var s *server.Server
	var here place
	start := func(t testing.TB) *server.Server {
		s = open(t)
		here.moveIn(s)
		return s
	}
	dial := func(dmutex.NodeID) []nats.Option { return []nats.Option{nats.SetCustomDialer(&here)} }
	linktest.TestStream(t, natsLinks(start, dial), func() {
		stopNATS(s)
		here.moveIn(open(t))
	})
}

// guarded starts a server where each node is a user with the permissions of the
// package comment of natslink, and no others.
func guarded(t testing.TB) *server.Server {
	var users []*server.User
	for id := dmutex.NodeID(1); id <= 3; id++ {
		users = append(users, &server.User{Username: id.String(), Password: "secret", Permissions: &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: []string{fmt.Sprintf("%s.*.%d", prefix, id)}},
			Subscribe: &server.SubjectPermission{Allow: []string{fmt.Sprintf("%s.%d.*", prefix, id)}},
		}})
	}
	return startNATS(t, server.Options{Port: -1, Users: users})
}

func user(id dmutex.NodeID) []nats.Option {
	return []nats.Option{nats.UserInfo(id.String(), "secret")}
}

// The permissions of guarded are enough for the link.
func TestNATSLinkPermitted(t *testing.T) {
	linktest.TestLink(t, natsLinks(guarded, user))
}

// They also keep a node from speaking for another node, and from reading frames for other
// nodes.
func TestNATSLinkForbidden(t *testing.T) {
	s := guarded(t)
	denied := make(chan error, 10)
	intruder := connect(t, s, nats.UserInfo("2", "secret"))
	intruder.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })

	eavesdropper, err := natslink.New(intruder, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	require.ErrorIs(t, eavesdropper.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}), nats.ErrPermissionViolation)
	require.ErrorIs(t, await(t, denied), nats.ErrPermissionViolation)
	require.NoError(t, eavesdropper.Close())

	honest, err := natslink.New(connect(t, s, user(1)...), natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	from := make(chan dmutex.NodeID, 10)
	require.NoError(t, honest.Open(transport.Host{Deliver: linktest.Each(func(sender dmutex.NodeID, _ []byte) { from <- sender })}))
	require.NoError(t, intruder.Publish(prefix+".1.3", []byte("I am node 3")))
	require.ErrorIs(t, await(t, denied), nats.ErrPermissionViolation)
	require.NoError(t, intruder.Publish(prefix+".1.2", []byte("I am node 2")))
	require.Equal(t, dmutex.NodeID(2), await(t, from))
	require.NoError(t, honest.Close())
}

// Every Open fails while the server has no room for the subscription.
func TestNATSLinkTooManySubscriptions(t *testing.T) {
	nc := connect(t, startNATS(t, server.Options{Port: -1, MaxSubs: 1}))
	app, err := nc.SubscribeSync("app")
	require.NoError(t, err)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}), nats.ErrMaxSubscriptionsExceeded)
		require.Equal(t, 1, nc.NumSubscriptions())
	}
	require.NoError(t, l.Close())
	require.NoError(t, app.Unsubscribe())
}

// A message that is not a node's frame is not delivered.
func TestNATSLinkNonsense(t *testing.T) {
	s := open(t)
	l, err := natslink.New(connect(t, s), natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	from := make(chan dmutex.NodeID, 10)
	require.NoError(t, l.Open(transport.Host{Deliver: linktest.Each(func(sender dmutex.NodeID, _ []byte) { from <- sender })}))
	nc := connect(t, s)
	for _, token := range []string{"0", "1", "01", "02", "-2", "+2", "2a", "x", "18446744073709551616"} {
		require.NoError(t, nc.Publish(prefix+".1."+token, []byte("frame")))
	}
	require.NoError(t, nc.Publish(prefix+".1.2", nil))
	require.NoError(t, nc.Publish(prefix+".1.2", make([]byte, maxFrame+1)))
	// NATS checks no permission to publish where a service answers on the reply subject of a request.
	service, err := nc.Subscribe("service", func(m *nats.Msg) {
		_ = m.RespondMsg(&nats.Msg{Data: m.Data, Header: nats.Header{"Service": {"1"}}})
	})
	require.NoError(t, err)
	require.NoError(t, nc.PublishRequest("service", prefix+".1.2", []byte("frame")))
	eventually(t, "the service does not answer", func() bool { delivered, err := service.Delivered(); return err == nil && delivered == 1 })
	require.NoError(t, nc.PublishRequest(prefix+".1.2", prefix+".1.3", []byte("frame")))
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: prefix + ".1.2", Reply: "x", Data: []byte("frame"), Header: nats.Header{"Status": {"503"}}}))
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: prefix + ".1.?2", Header: nats.Header{"Status": {"503"}}})) // nobody has asked
	require.NoError(t, nc.Flush())
	require.NoError(t, nc.Publish(prefix+".1.7", []byte("frame")))
	require.Equal(t, dmutex.NodeID(7), await(t, from))
	require.NoError(t, l.Close())
	require.Empty(t, from)
}

// A link ends with its connection. The connection stays open when the link is
// closed.
func TestNATSLinkConnection(t *testing.T) {
	s := open(t)
	nc := connect(t, s)
	l, err := natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	require.NoError(t, l.Close())
	require.True(t, nc.IsConnected())
	require.NoError(t, nc.Flush())
	require.Zero(t, nc.NumSubscriptions())

	l, err = natslink.New(nc, natslink.Config{Self: 1, Prefix: prefix})
	require.NoError(t, err)
	require.NoError(t, l.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	nc.Close()
	for late := time.Now().Add(patience); !errors.Is(err, transport.ErrClosed); runtime.Gosched() {
		require.True(t, time.Now().Before(late), "the link does not notice the end of its connection")
		err = l.Send(2, []byte{1})
	}
	require.NoError(t, l.Close())
}

func await[T any](t *testing.T, c <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-c:
	case <-time.After(patience):
		require.FailNow(t, "waited in vain")
	}
	return v
}
