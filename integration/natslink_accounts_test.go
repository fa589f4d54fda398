package integration

import (
	"os"
	"regexp"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport/natslink"
)

// documented starts a server with the configuration that docs/security.md shows.
func documented(t *testing.T) *server.Server {
	t.Helper()
	page, err := os.ReadFile("../docs/security.md")
	require.NoError(t, err)
	shown := regexp.MustCompile(`(?ms)^accounts \{$.*?^\}$`).FindString(string(page))
	require.NotEmpty(t, shown)
	options := server.Options{Port: -1}
	require.NoError(t, options.ProcessConfigString(shown))
	options.Port = -1
	return startNATS(t, options)
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
	require.NoError(t, l.Open(func(from dmutex.NodeID, frame []byte) { got <- heard{from, string(frame)} }))
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l, got
}

// The documented configuration is enough for the link, and two accounts with
// one prefix do not meet.
func TestNATSLinkAccounts(t *testing.T) {
	s := documented(t)
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
	s := documented(t)
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
