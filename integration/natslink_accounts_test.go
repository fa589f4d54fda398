package integration

import (
	"context"
	"net"
	"os"
	"regexp"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
	"github.com/dmutex/dmutex/transport/natslink"
)

// documented starts a server with a configuration that docs/security.md shows: the first or the second.
func documented(t *testing.T, which int) *server.Server {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	shown := regexp.MustCompile(`(?ms)^accounts \{$.*?^\}$`).FindAllString(string(page), -1)
	require.Len(t, shown, 2)
	options := server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir()}
	require.NoError(t, options.ProcessConfigString(shown[which]))
	options.Port = -1
	return startNATS(t, options)
}

// A group in an account of its own: the documented permissions are enough for members and clients, and
// users of other accounts cannot have services speak for members, or write the record.
func TestNATSAccountOfItsOwn(t *testing.T) {
	s := documented(t, 1)
	as := func(user, password string) *nats.Conn {
		return connect(t, s, nats.UserInfo(user, password), nats.CustomInboxPrefix("_INBOX."+user))
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	nc := as("member", "s3cret-m")
	listener, err := natsclient.Listen(nc, "dmutex-clients.invoices")
	require.NoError(t, err)
	n, err := natsnode.Open(ctx, nc, "invoices", node.Config{Lease: sessions, Clients: &node.Clients{Listeners: []net.Listener{listener}}})
	require.NoError(t, err)
	closeNode(t, n)
	require.NoError(t, n.Ready(ctx))
	alice, err := client.New(client.Config{Members: []string{"dmutex-clients.invoices"}, Dial: natsclient.Dialer(as("alice", "s3cret-a"))})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, alice.Close()) })
	held := take(t, alice, "l")

	app := as("app", "s3cret-o")
	service, err := app.Subscribe("echo", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	require.NoError(t, err)
	for _, subject := range []string{"$KV.dmutex.invoices", "dmutex.invoices.1.2"} {
		require.NoError(t, app.PublishRequest("echo", subject, []byte("forged")))
	}
	eventually(t, "the service does not answer", func() bool { done, err := service.Delivered(); return err == nil && done == 2 })
	require.NoError(t, app.Flush())
	_, _, err = openStore(t, nc).Load(ctx)
	require.NoError(t, err, "the record is the group's")
	require.NoError(t, held.Release())
	require.NoError(t, n.Status().Err)
}

// openStore opens the record of the group invoices.
func openStore(t *testing.T, nc *nats.Conn) store.Store {
	s, err := natsstore.Open(t.Context(), jetStream(t, nc), "dmutex", "invoices")
	require.NoError(t, err)
	return s
}

func billing(id dmutex.NodeID) nats.Option {
	return nats.UserInfo("billing"+id.String(), "s3cret-b"+id.String())
}

func orders(id dmutex.NodeID) nats.Option {
	return nats.UserInfo("orders"+id.String(), "s3cret-o"+id.String())
}

type heard struct {
	from  dmutex.NodeID
	frame string
}

// listen opens a link and returns what arrives.
func listen(t *testing.T, nc *nats.Conn, self dmutex.NodeID, prefix string) (*natslink.Link, <-chan heard) {
	t.Helper()
	l, err := natslink.New(nc, natslink.Config{Self: self, Prefix: prefix})
	require.NoError(t, err)
	got := make(chan heard, 100)
	require.NoError(t, l.Open(transport.Host{Deliver: linktest.Each(func(from dmutex.NodeID, frame []byte) { got <- heard{from, string(frame)} })}))
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, got
}

// The documented configuration is enough for the link, and two accounts with
// one prefix do not meet.
func TestNATSLinkAccounts(t *testing.T) {
	s := documented(t, 0)
	billing1, billing1Got := listen(t, connect(t, s, billing(1)), 1, "locks")
	billing2, billing2Got := listen(t, connect(t, s, billing(2)), 2, "locks")
	orders1, orders1Got := listen(t, connect(t, s, orders(1)), 1, "locks")
	orders2, orders2Got := listen(t, connect(t, s, orders(2)), 2, "locks")
	require.NoError(t, billing1.Send(2, []byte("billing")))
	require.NoError(t, orders1.Send(2, []byte("orders")))
	require.Equal(t, heard{1, "billing"}, await(t, billing2Got))
	require.Equal(t, heard{1, "orders"}, await(t, orders2Got))
	require.NoError(t, billing2.Send(1, []byte("billing")))
	require.NoError(t, orders2.Send(1, []byte("orders")))
	require.Equal(t, heard{2, "billing"}, await(t, billing1Got))
	require.Equal(t, heard{2, "orders"}, await(t, orders1Got))
	for _, got := range []<-chan heard{billing1Got, billing2Got, orders1Got, orders2Got} {
		require.Empty(t, got)
	}
}

// Within an account, no subject lets a user speak in another's name or
// read what is sent to another.
func TestNATSLinkUsers(t *testing.T) {
	s := documented(t, 0)
	one, got := listen(t, connect(t, s, billing(1)), 1, "locks")
	nc := connect(t, s, billing(2))
	denied := make(chan error, 10)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { denied <- err })
	spied := make(chan *nats.Msg, 100)

	for _, subject := range []string{
		"locks.1.3", "locks.1.1", "locks.2.1", "locks.1.02", "locks.1.2.2", "locks.1", "locks", "other.1.2", "$SYS.REQ.SERVER.PING",
	} {
		require.NoError(t, nc.Publish(subject, []byte("forged")))
		err := await(t, denied)
		require.ErrorIs(t, err, nats.ErrPermissionViolation)
		require.ErrorContains(t, err, `"`+subject+`"`)
	}
	for _, subject := range []string{
		"locks.1.*", "locks.1.2", "locks.*.2", "locks.*.*", "locks.>", "*.1.*", ">", "locks.3.*", "_INBOX.>", "$SYS.>",
	} {
		for _, queue := range []string{"", "queue"} {
			_, err := nc.ChanQueueSubscribe(subject, queue, spied)
			require.NoError(t, err)
			require.ErrorIs(t, await(t, denied), nats.ErrPermissionViolation, "%s in queue %q", subject, queue)
		}
	}
	own, err := nc.ChanSubscribe("locks.2.*", spied)
	require.NoError(t, err)
	require.NoError(t, nc.Flush())

	require.NoError(t, nc.Publish("locks.1.2", []byte("genuine")))
	require.Equal(t, heard{2, "genuine"}, await(t, got))
	require.NoError(t, one.Send(2, []byte("for 2")))
	require.Equal(t, "locks.2.1", await(t, spied).Subject)
	require.NoError(t, own.Unsubscribe())
	require.NoError(t, one.Send(2, []byte("for 2")))
	require.NoError(t, one.Send(3, []byte("for 3")))
	require.NoError(t, one.Close()) // the server has the frames
	require.NoError(t, nc.Flush())  // and would have passed them on
	require.Empty(t, spied)
	require.Empty(t, got)
	require.Empty(t, denied)
}
