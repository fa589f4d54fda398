package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// sessions is the length of sessions in these tests.
const sessions = 3 * time.Second

// lenders is a group in memory with members that serve clients over NATS.
type lenders struct {
	t       *testing.T
	net     *memlink.Network
	store   store.Memory
	session time.Duration
}

func newLenders(t *testing.T) *lenders {
	network, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	return &lenders{t: t, net: network, session: sessions}
}

func (l *lenders) open(nc *nats.Conn, allow func(net.Conn, string, string, bool) error) *node.Node {
	listener, err := natsclient.Listen(nc, "locks.clients")
	require.NoError(l.t, err)
	n, err := node.Open(l.t.Context(), &l.store, l.net.Link(dmutex.None), node.Config{
		Lease: l.session, Clients: &node.Clients{Listeners: []net.Listener{listener}, Allow: allow},
	})
	require.NoError(l.t, err)
	closeNode(l.t, n)
	ctx, cancel := context.WithTimeout(l.t.Context(), patience)
	defer cancel()
	require.NoError(l.t, n.Ready(ctx))
	return n
}

func lend(t *testing.T, nc *nats.Conn, name string) *client.Client {
	c, err := client.New(client.Config{Members: []string{"locks.clients"}, Dial: natsclient.Dialer(nc), Name: name})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func take(t *testing.T, c *client.Client, name string) lock.Held {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := c.Mutex(name).Acquire(ctx)
	require.NoError(t, err)
	return h
}

// Clients take turns. They keep their locks when they reconnect, and go to another member when
// their member closes.
func TestNATSClient(t *testing.T) {
	s := startNATS(t, server.Options{Port: -1})
	group := newLenders(t)
	members := []*node.Node{group.open(connect(t, s), nil), group.open(connect(t, s), nil)}
	nc := connect(t, s)
	one, two := lend(t, nc, "one"), lend(t, connect(t, s), "two")
	h := take(t, one, "l")
	_, err := two.Mutex("l").TryAcquire(t.Context())
	require.ErrorIs(t, err, lock.ErrBusy)
	granted := make(chan lock.Held)
	go func() { granted <- take(t, two, "l") }()

	require.NoError(t, nc.ForceReconnect())
	for first := h.Until(); h.Until().Before(first.Add(sessions)); <-time.After(time.Millisecond) { // the session goes on
		require.NoError(t, h.Err())
	}
	require.NoError(t, h.Err())
	require.NoError(t, h.Release())
	next := await(t, granted)
	require.Greater(t, next.Fence(), h.Fence())
	require.NoError(t, next.Release())

	held := take(t, one, "m")
	mine, other := members[0], members[1]
	if !serves(mine, "one") {
		mine, other = other, mine
	}
	closed := make(chan error)
	go func() { closed <- mine.Close(context.WithoutCancel(t.Context())) }()
	for err = nil; !errors.Is(err, node.ErrClosed); <-time.After(time.Millisecond) {
		_, err = mine.Mutex("m").TryAcquire(t.Context())
		require.Error(t, err)
		require.NoError(t, held.Err())
	}
	require.Empty(t, closed)
	require.NoError(t, held.Release())
	require.NoError(t, await(t, closed))
	require.NoError(t, take(t, one, "m").Release())
	require.True(t, serves(other, "one"))
}

func serves(n *node.Node, name string) bool {
	for _, c := range n.Status().Clients {
		if c.Name == name {
			return true
		}
	}
	return false
}

// The server tells a client that there is no member. A lost message ends a connection.
func TestNATSClientLost(t *testing.T) {
	s := startNATS(t, server.Options{Port: -1})
	nc := connect(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := natsclient.Dialer(nc)(ctx, "locks.clients")
	require.ErrorIs(t, err, nats.ErrNoResponders)
	require.ErrorContains(t, err, "natsclient: no member has answered on locks.clients.new")

	listener, err := natsclient.Listen(nc, "locks.clients")
	require.NoError(t, err)
	_, err = natsclient.Dialer(nc)(ctx, "locks")
	require.ErrorIs(t, err, nats.ErrNoResponders)
	pair := func() (near, far net.Conn) {
		near, err = natsclient.Dialer(nc)(ctx, "locks.clients")
		require.NoError(t, err)
		_, err = near.Write([]byte("a")) // a connection begins with its first message
		require.NoError(t, err)
		far, err = listener.Accept()
		require.NoError(t, err)
		_, err = io.ReadFull(far, make([]byte, 1))
		require.NoError(t, err)
		return near, far
	}
	hear := func(nc net.Conn) (string, error) {
		b := make([]byte, 10_000)
		n, err := nc.Read(b)
		return string(b[:n]), err
	}
	near, far := pair()
	long := strings.Repeat("x", 5000)
	_, err = near.Write([]byte(long))
	require.NoError(t, err)
	require.NoError(t, near.Close())
	got := ""
	for err == nil {
		var more string
		more, err = hear(far)
		got += more
	}
	require.Equal(t, long, got)
	require.EqualError(t, err, "EOF")

	near, far = pair()
	_, err = near.Write([]byte("a"))
	require.NoError(t, err)
	require.NoError(t, nc.Publish(far.LocalAddr().String(), binary.BigEndian.AppendUint32(nil, 3)))
	_, err = near.Write([]byte("b"))
	require.NoError(t, err)
	require.NoError(t, nc.Flush())
	heard, err := hear(far)
	require.NoError(t, err)
	require.Equal(t, "a", heard[:1])
	for err == nil {
		_, err = hear(far)
	}
	require.ErrorContains(t, err, "was lost")

	near, far = pair()
	require.NoError(t, far.SetReadDeadline(time.Now().Add(time.Millisecond)))
	_, err = hear(far)
	require.Error(t, err)
	again, err := natsclient.Dialer(nc)(ctx, near.RemoteAddr().String())
	require.NoError(t, err)
	require.Equal(t, near.RemoteAddr(), again.RemoteAddr(), "the same member")
	require.NoError(t, listener.Close())
	_, err = listener.Accept()
	for err == nil {
		_, err = listener.Accept()
	}
	require.ErrorIs(t, err, net.ErrClosed)
}

// The documented permissions are enough. A client can read and write only its own messages, and
// Allow knows a client by its inbox. A client can make a member publish only to an inbox.
func TestNATSClientPermissions(t *testing.T) {
	user := func(name string, publish, subscribe []string) *server.User {
		return &server.User{Username: name, Password: name, Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Allow: publish}, Subscribe: &server.SubjectPermission{Allow: subscribe},
		}}
	}
	s := startNATS(t, server.Options{Port: -1, Users: []*server.User{
		user("member", []string{"_INBOX.>", "record"}, []string{"locks.clients.>"}),
		user("alice", []string{"locks.clients.>"}, []string{"_INBOX.alice.>"}),
		user("bob", []string{"locks.clients.>"}, []string{"_INBOX.bob.>"}),
		{Username: "spy", Password: "spy"},
	}})
	as := func(name string) *nats.Conn {
		return connect(t, s, nats.UserInfo(name, name), nats.CustomInboxPrefix("_INBOX."+name))
	}
	newLenders(t).open(as("member"), func(nc net.Conn, _, lock string, _ bool) error {
		if lock == "hers" && !strings.HasPrefix(nc.RemoteAddr().String(), "_INBOX.alice.") {
			return errors.New("it belongs to alice")
		}
		return nil
	})
	h := take(t, lend(t, as("alice"), "alice"), "hers")
	bob := as("bob")
	_, err := lend(t, bob, "alice").Mutex("hers").TryAcquire(t.Context())
	require.ErrorIs(t, err, client.ErrRefused)
	require.ErrorContains(t, err, "it belongs to alice")
	require.NoError(t, h.Err())

	denied := make(chan error, 10)
	bob.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
	for _, subject := range []string{"_INBOX.alice.x", "_INBOX.alice.>", "_INBOX.>", "locks.clients.new", "locks.clients.>"} {
		_, err := bob.SubscribeSync(subject)
		require.NoError(t, err)
		require.ErrorIs(t, await(t, denied), nats.ErrPermissionViolation, subject)
	}
	spy := as("spy")
	published, err := spy.SubscribeSync("record")
	require.NoError(t, err)
	require.NoError(t, spy.Flush())
	require.NoError(t, bob.PublishRequest("locks.clients.new", "record", []byte("_INBOX.bob.x")))
	require.NoError(t, bob.PublishRequest("locks.clients.new", "_INBOX.bob.x", []byte("record")))
	require.NoError(t, bob.Flush())
	require.NoError(t, take(t, lend(t, bob, "bob"), "his").Release()) // the member has answered all before
	require.NoError(t, spy.Flush())
	_, err = published.NextMsg(time.Millisecond)
	require.ErrorIs(t, err, nats.ErrTimeout)
}

// A client with the documented permissions cannot break a member's connection, whatever it sends, and
// what it sends costs the others no lock.
func TestNATSClientHostile(t *testing.T) {
	s := startNATS(t, server.Options{Port: -1})
	members := connect(t, s)
	group := newLenders(t)
	group.session = 10 * time.Second // a slow machine may take long to read the flood
	group.open(members, nil)
	alice := lend(t, connect(t, s), "alice")
	h := take(t, alice, "hers")

	hostile := connect(t, s)
	inbox, long := "_INBOX.mallory.1", "_INBOX.mallory."+strings.Repeat("x", 4025)
	for _, bad := range []string{long, "_INBOX..1", "_INBOX.>", "_INBOX.mallory.*"} {
		require.NoError(t, hostile.PublishRequest("locks.clients.new", inbox, []byte(bad)))
		if bad == long {
			require.NoError(t, hostile.PublishRequest("locks.clients.new", bad, []byte(inbox)))
		}
	}
	for range 50 {
		require.NoError(t, hostile.PublishRequest("locks.clients.new", inbox, make([]byte, 1<<20-100)))
	}
	for range 50_000 {
		require.NoError(t, hostile.PublishRequest("locks.clients.new", inbox, []byte(inbox)))
	}
	require.NoError(t, hostile.Flush())
	require.NoError(t, take(t, alice, "another").Release())
	require.NoError(t, h.Err())
	require.Zero(t, members.Stats().Reconnects)
	require.False(t, members.IsClosed())
	require.NoError(t, take(t, lend(t, connect(t, s), "bob"), "his").Release())
}

// The server may give the call of a client to a member that hangs. The client calls again.
func TestNATSClientCallsAgain(t *testing.T) {
	s := startNATS(t, server.Options{Port: -1})
	connect := func() *nats.Conn {
		nc, err := nats.Connect(s.ClientURL())
		require.NoError(t, err)
		t.Cleanup(nc.Close)
		return nc
	}
	hung, calls := connect(), 0
	sub, err := hung.QueueSubscribe("p.new", "members", func(msg *nats.Msg) {
		if calls++; calls > 1 {
			_ = hung.PublishRequest(msg.Reply, "p.member.1", nil)
		}
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, sub.Unsubscribe()) }()
	require.NoError(t, hung.Flush())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	nc, err := natsclient.Dialer(connect())(ctx, "p")
	require.NoError(t, err)
	require.NoError(t, nc.Close())
}
