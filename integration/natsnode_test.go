package integration

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
	"github.com/dmutex/dmutex/store"
)

// closeNode closes a node at the end of the test.
func closeNode(t *testing.T, n *node.Node) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(t, n.Close(ctx))
	})
}

// requireTurns takes and releases a lock at each node.
func requireTurns(t *testing.T, nodes ...*node.Node) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last uint64
	for _, n := range nodes {
		require.NoError(t, n.Mutex("x").Do(ctx, func(_ context.Context, fence uint64) error {
			require.Greater(t, fence, last)
			last = fence
			return nil
		}))
	}
}

// Nodes that start at the same time on a server without a bucket make the bucket, and form one
// group.
func TestNATSNode(t *testing.T) {
	s := startJetStream(t)
	var starting sync.WaitGroup
	nodes, errs := make([]*node.Node, 3), make([]error, 3)
	for i := range nodes {
		nc := connect(t, s)
		starting.Go(func() {
			nodes[i], errs[i] = natsnode.Open(t.Context(), nc, "invoices", node.Config{Lease: time.Second})
		})
	}
	starting.Wait()
	for i, n := range nodes {
		require.NoError(t, errs[i])
		closeNode(t, n)
	}
	requireTurns(t, nodes...)
	require.Len(t, nodes[0].Status().Peers, 2)

	stream, err := jetStream(t, connect(t, s)).Stream(t.Context(), "KV_dmutex")
	require.NoError(t, err)
	require.Equal(t, jetstream.FileStorage, stream.CachedInfo().Config.Storage)
	require.Equal(t, 1, stream.CachedInfo().Config.Replicas, "the server is in no cluster")
}

// A connection that would stay with a server that hangs for longer than half a lease is warned of.
func TestNATSNodeWarns(t *testing.T) {
	s := startJetStream(t)
	for name, tt := range map[string]struct {
		options []nats.Option
		want    string
	}{
		"defaults":   {nil, "silent=6m0s"},
		"documented": {[]nats.Option{nats.PingInterval(time.Second / 8), nats.MaxPingsOutstanding(2)}, ""},
		"none":       {[]nats.Option{nats.PingInterval(0)}, "silent=0s"},
		"many":       {[]nats.Option{nats.PingInterval(time.Second / 8), nats.MaxPingsOutstanding(4)}, "silent=625ms"},
	} {
		t.Run(name, func(t *testing.T) {
			var log nodetest.Journal
			n, err := natsnode.Open(t.Context(), connect(t, s, tt.options...), "invoices", node.Config{Lease: time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			require.NoError(t, err)
			require.NoError(t, n.Close(t.Context()))
			if tt.want == "" {
				require.NotContains(t, log.String(), "hangs")
			} else {
				require.Regexp(t, `level=WARN msg="a NATS server that hangs is left too late: .* `+tt.want, log.String())
			}
		})
	}
}

// A group that is named badly, a bucket that could lose the record, and a server without
// JetStream are refused.
func TestNATSNodeRefuses(t *testing.T) {
	_, err := natsnode.Open(t.Context(), connect(t, startNATS(t, server.Options{Port: -1})), "invoices", node.Config{})
	require.ErrorContains(t, err, "no server with JetStream answers: start it with -js")
	_, err = natsnode.Open(t.Context(), nil, "invoices", node.Config{})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "natslink: the connection is nil")
	nc := connect(t, startJetStream(t))
	_, err = natsnode.Open(t.Context(), nc, "in voices", node.Config{})
	require.ErrorContains(t, err, "use letters, digits, - _ =")
	_, err = jetStream(t, nc).CreateKeyValue(t.Context(), jetstream.KeyValueConfig{Bucket: "dmutex", Storage: jetstream.MemoryStorage})
	require.NoError(t, err)
	_, err = natsnode.Open(t.Context(), nc, "invoices", node.Config{})
	require.ErrorIs(t, err, store.ErrUnusable)
	require.ErrorContains(t, err, "is in memory, and would forget the record")
}

// The permissions of the package comment are enough, also to make the bucket. Without the
// permission to make it, the error says what to do.
func TestNATSNodePermitted(t *testing.T) {
	use := []string{
		"dmutex.invoices.>", "$KV.dmutex.invoices", "$KV.dmutex.invoices.read",
		"$JS.API.STREAM.INFO.KV_dmutex", "$JS.API.STREAM.MSG.GET.KV_dmutex",
	}
	for _, publish := range [][]string{use, append([]string{"$JS.API.INFO", "$JS.API.STREAM.CREATE.KV_dmutex"}, use...)} {
		s := startNATS(t, server.Options{Port: -1, JetStream: true, StoreDir: t.TempDir(), Users: []*server.User{
			{Username: "node", Password: "secret", Permissions: &server.Permissions{
				Publish:   &server.SubjectPermission{Allow: publish},
				Subscribe: &server.SubjectPermission{Allow: []string{"dmutex.invoices.>", "_INBOX.>"}},
			}},
		}})
		var nodes []*node.Node
		for range 2 {
			n, err := natsnode.Open(t.Context(), connect(t, s, nats.UserInfo("node", "secret")), "invoices", node.Config{Lease: time.Second})
			if len(publish) == len(use) {
				require.ErrorIs(t, err, store.ErrUnusable)
				require.ErrorContains(t, err, "there is no bucket dmutex, and it cannot be made: ")
				require.ErrorContains(t, err, `Publish to "$JS.API.`)
				require.True(t, strings.HasSuffix(err.Error(), "make it by hand: the documentation of package natsstore has the command"), err)
				continue
			}
			require.NoError(t, err)
			closeNode(t, n)
			nodes = append(nodes, n)
		}
		requireTurns(t, nodes...)
	}
}
