package integration

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/natslink"
)

// Two groups with records of their own that share a prefix get an error that names the prefix. Both
// still grant locks.
func TestNATSLinkTwoGroups(t *testing.T) {
	s := startJetStream(t)
	js := jetStream(t, connect(t, s))
	var nodes []*node.Node
	var logs []*journal
	for _, group := range []string{"billing", "orders", "billing", "orders"} {
		log := new(journal)
		logs = append(logs, log)
		link, err := natslink.New(connect(t, s), natslink.Config{Prefix: prefix})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), openKey(t, js, group), link, node.Config{Lease: time.Second, Logger: log.logger()})
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	for i, log := range logs {
		log.await(t, "another group uses this network", "node %d is not told", i)
		require.Contains(t, log.String(), "a Config.Prefix of its own")
	}
	for i, n := range nodes {
		for late, told := time.Now().Add(patience), false; !told; <-time.After(time.Millisecond) {
			require.True(t, time.Now().Before(late), "the status of node %d does not tell", i)
			for _, p := range n.Status().Peers {
				told = told || p.Err != nil && strings.Contains(p.Err.Error(), "a Config.Prefix of its own")
			}
		}
		require.NoError(t, n.Status().Err, "the record is sound")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		require.NoError(t, n.Mutex("l").Do(ctx, func(context.Context, uint64) error { return nil }))
	}
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = n.Close(ctx)
		cancel()
	}
}

// A journal is a log that is read while it is written.
type journal struct {
	mu   sync.Mutex
	text strings.Builder
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

func (j *journal) Write(record []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(record)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// await waits until the log has the text.
func (j *journal) await(t *testing.T, text, otherwise string, args ...any) {
	t.Helper()
	for late := time.Now().Add(patience); !strings.Contains(j.String(), text); <-time.After(time.Millisecond) {
		require.True(t, time.Now().Before(late), append([]any{otherwise}, args...)...)
	}
}
