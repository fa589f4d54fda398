package node_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/transport/memlink"
)

// journal is what a node has logged, without the time.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
	gate chan struct{} // Write waits until it is closed, unless it is nil
}

func (j *journal) Write(b []byte) (int, error) {
	if j.gate != nil {
		<-j.gate
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(j, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
}

// take returns the lines since the last take.
func (j *journal) take() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	defer j.text.Reset()
	return strings.Split(strings.TrimSuffix(j.text.String(), "\n"), "\n")
}

// startLogging starts a node that logs.
func (g *group) startLogging(id dmutex.NodeID, logger *slog.Logger) *node.Node {
	n, err := node.Open(g.t.Context(), node.Config{
		Self: id, Members: g.members, Algorithm: g.algorithm, Link: g.net.Link(id), Group: "billing", Logger: logger,
	})
	require.NoError(g.t, err)
	g.nodes[id] = n
	return n
}

// What an operator reads: once each, and nothing of ordinary use.
func TestLog(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log, other journal
		one := g.startLogging(1, log.logger())
		require.Equal(t, []string{`level=INFO msg="node opened" node=1 group=billing`}, log.take())
		g.startLogging(2, nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{`level=INFO msg="peer met" node=1 group=billing peer=2`}, log.take())
		g.startLogging(3, other.logger())
		require.NoError(t, one.Ready(t.Context()))
		require.Equal(t, []string{
			`level=INFO msg="peer met" node=1 group=billing peer=3`,
			`level=INFO msg="group ready" node=1 group=billing`,
		}, log.take())
		for range 100 {
			require.NoError(t, g.acquire(1, "x").Release())
			require.NoError(t, g.acquire(2, "x").Release())
		}
		time.Sleep(time.Hour)
		require.Equal(t, []string{""}, log.take())

		g.close(3)
		require.Equal(t, []string{`level=INFO msg="peer left" node=1 group=billing peer=3`}, log.take())
		_, err := g.mutex(1, "x").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrLeft)
		require.Equal(t, []string{
			`level=WARN msg="lock stopped" node=1 group=billing peer=3 lock=x err="node 3: it has left the group"`,
		}, log.take())

		g.crash(2)
		g.startLogging(2, nil)
		time.Sleep(time.Second)
		require.NoError(t, g.nodes[1].Close(t.Context()))
		require.Equal(t, []string{
			`level=ERROR msg="group broken: nothing more is granted" node=1 group=billing peer=2 err="node 2: it has restarted and forgotten who holds what, or two processes use its id; restart the whole group"`,
			`level=INFO msg="node closed" node=1 group=billing`,
		}, log.take())
		last := other.take()
		require.Equal(t, `level=INFO msg="node closed" node=3 group=billing`, last[len(last)-1])
	})
}

// A farewell that is cut short, and a restart while nobody has acted yet.
func TestLogOfStart(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log journal
		g.startLogging(1, log.logger())
		g.startLogging(2, nil)
		time.Sleep(time.Minute)
		log.take()
		g.crash(2)
		g.startLogging(2, nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{
			`level=WARN msg="peer restarted" node=1 group=billing peer=2`,
		}, log.take())
		for _, id := range []dmutex.NodeID{2, 3} {
			g.net.Cut(1, id)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, g.nodes[1].Close(ctx), context.DeadlineExceeded)
		require.Equal(t, []string{
			`level=WARN msg="node closed" node=1 group=billing err="node: close: the last messages are not acknowledged by [2]: context deadline exceeded"`,
		}, log.take())
		g.net.Heal()
	})
}

// A Close that is cut short says for whom it waited, and what it leaves behind is
// told to those whom it concerns: the others.
func TestLogOfClose(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log, other journal
		g.startLogging(1, log.logger())
		g.startLogging(2, other.logger())
		g.startLogging(3, nil)
		held := g.acquire(2, "x")
		ctx, cancel := context.WithCancel(t.Context())
		waits := g.acquireLater(ctx, 1, "x")
		synctest.Wait()
		cancel()
		require.ErrorIs(t, (<-waits).err, context.Canceled)
		log.take()
		other.take()
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		why := "node: close: requests that were withdrawn wait for [2]: context deadline exceeded"
		require.EqualError(t, g.nodes[1].Close(hurry), why)
		require.Equal(t, []string{`level=WARN msg="node closed" node=1 group=billing err="` + why + `"`}, log.take())
		require.Contains(t, other.take(), `level=WARN msg="lock stopped" node=2 group=billing peer=1 lock=x err="node 1: it has left the group"`)
		require.NoError(t, held.Release())
	})
}

// So it does at the coordinator, whose request waits for the one that it granted.
func TestCloseOfCoordinator(t *testing.T) {
	bubble(t, central.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(3, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := g.nodes[1].Mutex("x").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualError(t, g.nodes[1].Close(hurry), "node: close: requests that were withdrawn wait for [3]: context deadline exceeded")
		require.NoError(t, held.Release())
	})
}

// Neither is a leader's function cut short.
func TestCloseOfLeader(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(2)
		leader := g.campaignLater(t.Context(), 1, "boss")
		hurry, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.EqualError(t, g.nodes[1].Close(hurry), `node: close: the function of "election/boss" has not returned: context deadline exceeded`)
		leader.stop <- nil
		require.ErrorIs(t, <-leader.done, node.ErrClosed)
	})
}

// A hostile peer cannot fill the disk, nor hold up the node by way of a slow
// handler; the operator still hears what it does.
func TestLogIsBounded(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		log := journal{gate: make(chan struct{})}
		one := g.startLogging(1, log.logger())
		hostile := g.net.Link(2)
		require.NoError(t, hostile.Open(func(dmutex.NodeID, []byte) {}))
		for range 1000 {
			require.NoError(t, hostile.Send(1, []byte("nonsense")))
			time.Sleep(time.Millisecond)
		}
		require.EqualValues(t, 1000, one.Status().Refused)
		close(log.gate)
		lines := log.take()
		require.Len(t, lines, 21)
		require.Contains(t, lines[20], `level=WARN msg="refused what no correct peer sends" node=1 group=billing peer=2 err="`)
		time.Sleep(time.Minute)
		require.Equal(t, []string{`level=WARN msg="records left out" node=1 group=billing count=980`}, log.take())
		require.NoError(t, hostile.Send(1, []byte("nonsense")))
		require.Len(t, log.take(), 1) // a new minute
		require.NoError(t, hostile.Close())
		g.close(1)
		require.Len(t, log.take(), 1)
		delete(g.nodes, 1)
	})
}

// A handler may ask the node, whatever the node is doing.
type curious struct {
	slog.Handler
	node **node.Node
}

func (c curious) Handle(ctx context.Context, r slog.Record) error {
	if n := *c.node; n != nil {
		n.Status()
		for name := range n.Locks() {
			n.Mutex(name).Status()
		}
	}
	return c.Handler.Handle(ctx, r)
}

func (c curious) WithAttrs(a []slog.Attr) slog.Handler {
	return curious{c.Handler.WithAttrs(a), c.node}
}

func TestLogHandlerAsksTheNode(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log journal
		var one *node.Node
		n := g.startLogging(1, slog.New(curious{log.logger().Handler(), &one}))
		synctest.Wait()
		one = n
		g.startLogging(2, nil)
		require.NoError(t, n.Ready(t.Context()))
		held := g.acquire(1, "x")
		g.close(2)
		_, err := g.mutex(1, "y").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrLeft)
		require.NoError(t, held.Release())
		require.Contains(t, strings.Join(log.take(), "\n"), `lock stopped`)
	})
}

// Whoever wonders why an Acquire does not return finds it in the log: once for each
// doubling of the wait, and only of the first waiter.
func TestLogOfWaits(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log journal
		one := g.startLogging(1, log.logger())
		g.startLogging(2, nil)
		g.startLogging(3, nil)
		require.NoError(t, one.Ready(t.Context()))
		held := g.acquire(2, "x")
		campaign, resign := context.WithCancel(t.Context())
		leader := g.campaignLater(campaign, 3, "leads")
		other := g.campaignLater(campaign, 1, "leads") // it may wait for ever
		log.take()
		ctx, cancel := context.WithCancel(t.Context())
		waits := []<-chan outcome{g.acquireLater(ctx, 1, "x")}
		synctest.Wait()
		waits = append(waits, g.acquireLater(t.Context(), 1, "x"))
		time.Sleep(9 * time.Second)
		require.Equal(t, []string{""}, log.take())
		time.Sleep(time.Minute)
		var want []string
		for _, s := range []int{10, 20, 40} {
			want = append(want, fmt.Sprintf(`level=WARN msg="lock is waited for" node=1 group=billing lock=x waited=%ds for="2 (silent for %[1]ds)"`, s))
		}
		require.Equal(t, want, log.take())
		cancel()
		require.ErrorIs(t, (<-waits[0]).err, context.Canceled)
		require.NoError(t, held.Release())
		h := (<-waits[1]).held
		waits[1] = g.acquireLater(t.Context(), 1, "x")
		time.Sleep(15 * time.Second)
		require.Equal(t, []string{`level=WARN msg="lock is waited for" node=1 group=billing lock=x waited=10s holder=1`}, log.take())
		require.NoError(t, h.Release())
		require.NoError(t, (<-waits[1]).held.Release())
		resign()
		require.ErrorIs(t, <-other.done, context.Canceled)
		leader.stop <- nil
		require.NoError(t, <-leader.done)
	})
}

// Who leaves and can no longer pass on a token says of nobody else that he has
// left.
func TestLogOfOneThatLeaves(t *testing.T) {
	bubble(t, ring.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log journal
		for _, id := range g.members {
			g.startLogging(id, log.logger())
		}
		require.NoError(t, g.nodes[2].Ready(t.Context()))
		time.Sleep(time.Second)
		g.net.Cut(2, 1) // which does not hear that 2 leaves, and sends it the token for 3
		closed := make(chan error)
		go func() { closed <- g.nodes[2].Close(t.Context()) }()
		synctest.Wait()
		log.take()
		_, err := g.mutex(3, "x").Acquire(t.Context())
		require.ErrorIs(t, err, node.ErrLeft)
		time.Sleep(time.Second)
		for _, line := range log.take() {
			require.Contains(t, line, `peer=2 lock=x err="node 2: it has left the group"`)
		}
		g.net.Heal()
		require.NoError(t, <-closed)
	})
}
