package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// Two groups with records of their own that share a prefix get an error that names the prefix.
func TestNATSLinkTwoGroups(t *testing.T) {
	s := startJetStream(t)
	js := jetStream(t, connect(t, s))
	var nodes []*node.Node
	var logs []*journal
	for _, group := range []string{"billing", "orders", "billing", "orders"} {
		log := new(journal)
		logs = append(logs, log)
		link, err := natslink.New(connect(t, s), natslink.Config{Prefix: prefix, Logger: log.logger()})
		require.NoError(t, err)
		n, err := node.Open(t.Context(), openKey(t, js, group), link, node.Config{Lease: time.Second})
		require.NoError(t, err)
		nodes = append(nodes, n)
	}
	for i, log := range logs {
		log.await(t, "natslink: two groups use one prefix", "node %d is not told", i)
		require.Contains(t, log.String(), strconv.Quote(fmt.Sprintf("under Config.Prefix %q: give each group a prefix of its own", prefix))[1:])
	}
	for i, n := range nodes {
		for late, told := time.Now().Add(patience), false; !told; <-time.After(time.Millisecond) {
			require.True(t, time.Now().Before(late), "the status of node %d does not tell", i)
			for _, p := range n.Status().Peers {
				told = told || p.Err != nil && strings.Contains(p.Err.Error(), fmt.Sprintf("Config.Prefix %q", prefix))
			}
		}
		require.NoError(t, n.Status().Err, "the record is sound")
	}
	for _, n := range nodes {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = n.Close(ctx)
		cancel()
	}
}

// A link reports the clash for as long as another group uses its prefix.
func TestNATSLinkClash(t *testing.T) {
	s := open(t)
	var links [2]*natslink.Link
	for i := range links {
		var err error
		links[i], err = natslink.New(connect(t, s), natslink.Config{Prefix: prefix})
		require.NoError(t, err)
		require.NoError(t, links[i].Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
	}
	says := func(l *natslink.Link, clash bool) {
		t.Helper()
		for late := time.Now().Add(patience); (l.Trouble(9) != nil) != clash; <-time.After(time.Millisecond) {
			require.True(t, time.Now().Before(late))
		}
	}
	require.NoError(t, links[0].Become(1))
	says(links[0], false)
	require.NoError(t, links[1].Become(1))
	says(links[0], true)
	says(links[1], true)
	require.ErrorContains(t, links[0].Trouble(9), "natslink: another group also has a node 1 under Config.Prefix")
	require.NoError(t, links[1].Become(2))
	says(links[1], false)
	says(links[0], false)
	for _, l := range links {
		_, receiving := l.Lost()
		require.Zero(t, receiving)
		require.NoError(t, l.Close())
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
