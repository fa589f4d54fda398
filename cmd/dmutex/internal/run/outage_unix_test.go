//go:build unix

package run

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/client/natsclient"
	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
)

// serverAt starts a server at a port of the loopback interface, which only this user may use if it has a name.
func serverAt(t *testing.T, port int, user string) {
	t.Helper()
	options := server.Options{Host: "127.0.0.1", Port: port, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir()}
	options.Username, options.Password = user, user
	ns, err := server.NewServer(&options)
	require.NoError(t, err)
	ns.Start()
	t.Cleanup(func() {
		ns.Shutdown()
		ns.WaitForShutdown()
	})
	require.True(t, ns.ReadyForConnections(tooltest.TooLong))
}

// freePort returns a port at which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().(*net.TCPAddr).Port
}

// A run that starts in an outage of its store, or of NATS, waits as long as --wait says, and says why nothing was run. One
// without --wait runs its command when the outage is over. What waiting does not mend ends it at once.
func TestStartsInOutage(t *testing.T) {
	for _, how := range []string{"--store", "--at"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			url := "nats://127.0.0.1:" + strconv.Itoa(port)
			flags := []string{how + "=" + url + "/locks", "--lock=door"}
			begin := time.Now()
			said := start(t, append(flags, "-w", "1"), "say:never").exits(statusNoLock)
			require.Contains(t, said, "nats server at "+url+": nats: no servers")
			require.Greater(t, time.Since(begin), time.Second)
			s := start(t, flags, "say:in")
			line, err := s.say.ReadString('\n')
			require.NoError(t, err)
			require.Contains(t, line, "dmutex run: still waiting: ")
			require.Contains(t, line, "nats server at "+url)
			serverAt(t, port, "")
			if how == "--at" {
				nc, err := nats.Connect(url)
				require.NoError(t, err)
				t.Cleanup(nc.Close)
				clients, err := natsclient.Listen(nc, "dmutex-clients.locks")
				require.NoError(t, err)
				n, err := natsnode.Open(t.Context(), nc, "locks", node.Config{Clients: &node.Clients{Listeners: []net.Listener{clients}}})
				require.NoError(t, err)
				t.Cleanup(func() { require.NoError(t, n.Close(context.WithoutCancel(t.Context()))) })
			}
			require.Equal(t, "in", s.line())
			s.exits(0)
		})
		t.Run(how+" without permission", func(t *testing.T) {
			t.Parallel()
			port := freePort(t)
			serverAt(t, port, "alice")
			said := start(t, []string{how + "=nats://bob:secret@127.0.0.1:" + strconv.Itoa(port) + "/locks", "--lock=door"}, "say:never").exits(statusNoLock)
			require.Regexp(t, "(?i)nothing was run: .*authorization violation", said)
			require.NotContains(t, said, "secret")
		})
	}
}
