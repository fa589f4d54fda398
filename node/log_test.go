package node_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

// startLogging starts a node that logs.
func (g *group) startLogging(id dmutex.NodeID, logger *slog.Logger) *member {
	return g.startWith(id, node.Config{Algorithm: g.algorithm, Name: fmt.Sprint("web-", id), Group: "billing", Logger: logger})
}

// The log names the peer that has met another process with the node's number, once,
// before the node stops.
func TestLogOfTakenNumber(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log nodetest.Journal
		n := g.startLogging(1, log.Logger())
		log.Take()
		g.node(1).host.Taken(3, 1)
		g.node(1).host.Taken(2, 1)
		require.Equal(t, []string{`level=WARN msg="peer has met another process with this node's number" node=1 group=billing peer=3`}, log.Take())
		require.NoError(t, n.Status().Err, "the other process may be about to end")
		time.Sleep(2500 * time.Millisecond)
		g.node(1).host.Taken(2, 1)
		require.ErrorIs(t, n.Status().Err, node.ErrNumberTaken)
		require.ErrorIs(t, n.Status().Err, node.ErrStopped)
		require.Len(t, log.Take(), 1)
	})
}

// An operator reads about each event once, and nothing about ordinary use.
func TestLog(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		nodetest.Today() // so that later lives are higher
		g.members = []dmutex.NodeID{1, 2, 3}
		var log, other nodetest.Journal
		one := g.startLogging(1, log.Logger())
		require.Equal(t, []string{`level=INFO msg="node opened" node=1 group=billing name=web-1`}, log.Take())
		time.Sleep(10 * time.Second)
		var want []string
		for _, s := range []int{3, 6} {
			want = append(want, fmt.Sprintf(`level=WARN msg="waiting for members" node=1 group=billing waited=%ds for="2 (never heard), 3 (never heard)"`, s))
		}
		require.Equal(t, want, log.Take())
		g.startLogging(2, nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{`level=INFO msg="peer met" node=1 group=billing peer=2`}, log.Take())
		time.Sleep(time.Minute)
		want = nil
		for _, s := range []int{12, 24, 48} {
			want = append(want, fmt.Sprintf(`level=WARN msg="waiting for members" node=1 group=billing waited=%ds for="3 (never heard)"`, s))
		}
		require.Equal(t, want, log.Take())
		g.startLogging(3, other.Logger())
		require.NoError(t, one.Ready(t.Context()))
		epoch := one.Status().View.Epoch
		require.Equal(t, []string{
			`level=INFO msg="peer met" node=1 group=billing peer=3`,
			fmt.Sprintf(`level=INFO msg="view acts" node=1 group=billing epoch=%d members="[1 2 3]" joined="[1 2 3]" took=`, epoch),
		}, untimed(log.Take()))
		for range 100 {
			require.NoError(t, g.acquire(1, "x").Release())
			require.NoError(t, g.acquire(2, "x").Release())
		}
		time.Sleep(time.Hour)
		require.Equal(t, []string{""}, log.Take())

		g.close(3)
		require.NoError(t, g.acquire(1, "x").Release())
		epoch = one.Status().View.Epoch
		require.ElementsMatch(t, []string{
			`level=INFO msg="peer gone" node=1 group=billing peer=3 name=web-3`,
			fmt.Sprintf(`level=INFO msg="view acts" node=1 group=billing epoch=%d members="[1 2]" left="[web-3 (node 3)]" took=`, epoch),
		}, untimed(log.Take()))

		g.crash(2)
		time.Sleep(time.Minute)
		require.Equal(t, []string{""}, log.Take(), "silence of a member is not logged")
		g.startLogging(2, nil)
		time.Sleep(time.Second)
		epoch = one.Status().View.Epoch
		require.NoError(t, g.node(1).Close(t.Context()))
		require.Equal(t, []string{
			`level=INFO msg="peer met" node=1 group=billing peer=2`,
			fmt.Sprintf(`level=INFO msg="view acts" node=1 group=billing epoch=%d members="[1 2]" joined=[2] left="[web-2 (node 2)]" took=`, epoch),
			`level=INFO msg="node closed" node=1 group=billing`,
		}, untimed(log.Take()))
		last := other.Take()
		require.Equal(t, `level=INFO msg="node closed" node=3 group=billing`, last[len(last)-1])
	})
}

// If a message that no correct peer sends ends a view, the log says where, from which peer, and
// why.
func TestLogOfTrouble(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log nodetest.Journal
		g.startLogging(1, log.Logger())
		var lies atomic.Bool
		g.algorithm = func(s dmutex.Start) (dmutex.Machine, error) {
			m, err := ricart.New(s)
			return liar{m, func(m *dmutex.Message) {
				if lies.Swap(false) {
					m.Kind = dmutex.Grant
				}
			}}, err
		}
		g.startLogging(2, nil)
		require.NoError(t, g.acquire(1, "x").Release())
		log.Take()
		lies.Store(true)
		require.NoError(t, g.acquire(1, "x").Release())
		lines := log.Take()
		require.Len(t, lines, 3)
		require.Contains(t, lines[0], `level=WARN msg="refused what no correct peer sends" node=1 group=billing peer=2 name=web-2 err=`)
		require.Contains(t, lines[1], `level=WARN msg="view is to be replaced" node=1 group=billing peer=2 name=web-2 lock=x err=`)
		require.Contains(t, lines[2], `level=INFO msg="view acts" node=1 group=billing epoch=`)
	})
}

// A Close that times out names the members that it has waited for. The node holds nothing any more.
func TestLogOfClose(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log nodetest.Journal
		one := g.startLogging(1, log.Logger())
		g.startLogging(2, nil)
		g.startLogging(3, nil)
		require.NoError(t, one.Ready(t.Context()))
		held := g.acquire(1, "x")
		log.Take()
		g.net.Cut(1, 2)
		hurry := nodetest.ContextFor(t, time.Second)
		why := "close: members [2] did not answer in time, so the others wait for this node to return: context deadline exceeded"
		require.EqualError(t, one.Close(hurry), "node: "+why)
		require.ErrorIs(t, held.Err(), node.ErrClosed)
		require.Equal(t, []string{`level=WARN msg="node closed" node=1 group=billing err="` + why + `"`}, log.Take())
		g.net.Heal()
	})
}

// A hostile peer cannot fill the disk, nor delay the node with a slow log handler. The operator
// still learns what the peer does.
func TestLogIsBounded(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		log := nodetest.Journal{Gate: make(chan struct{})}
		one := g.startLogging(1, log.Logger())
		hostile := g.net.Link(2)
		require.NoError(t, hostile.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
		for range 1000 {
			require.NoError(t, hostile.Send(1, []byte("nonsense")))
			time.Sleep(time.Millisecond)
		}
		require.EqualValues(t, 1000, one.Status().Refused)
		close(log.Gate)
		lines := log.Take()
		require.Len(t, lines, 2)
		require.Contains(t, lines[1], `level=WARN msg="refused what no correct peer sends" node=1 group=billing peer=2 err="`)
		time.Sleep(time.Minute)
		require.Equal(t, []string{lines[1] + " again=999"}, without(log.Take(), "waiting for members"))
		require.NoError(t, hostile.Send(1, []byte("nonsense")))
		require.Empty(t, strings.Join(log.Take(), ""), "it is only counted")
		require.NoError(t, hostile.Close())
		g.close(1)
		require.Contains(t, strings.Join(log.Take(), "\n"), lines[1]+" again=1")
	})
}

// Peers that come and go all the time cause no warning, and leave room for real warnings.
func TestLogOfChurnIsNoWarning(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log nodetest.Journal
		one := g.startLogging(1, log.Logger())
		for range 10 {
			g.startLogging(2, slog.New(slog.DiscardHandler))
			require.NoError(t, one.Ready(t.Context()))
			time.Sleep(2 * time.Second)
			g.close(2)
		}
		hostile := g.net.Link(2)
		require.NoError(t, hostile.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}))
		require.NoError(t, hostile.Send(1, []byte("nonsense")))
		time.Sleep(time.Minute)
		lines := log.Take()
		require.Contains(t, strings.Join(lines, "\n"), `level=INFO msg="records left out"`)
		warnings := without(lines, "level=INFO")
		require.Len(t, warnings, 1)
		require.Contains(t, warnings[0], "refused what no correct peer sends")
		require.NoError(t, hostile.Close())
	})
}

// curious is a log handler that asks the node at each record, whatever the node is doing.
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
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log nodetest.Journal
		var one *node.Node
		n := g.startLogging(1, slog.New(curious{log.Logger().Handler(), &one}))
		synctest.Wait()
		one = n.Node
		g.startLogging(2, nil)
		require.NoError(t, n.Ready(t.Context()))
		held := g.acquire(1, "x")
		g.close(2)
		require.NoError(t, g.acquire(1, "y").Release())
		require.NoError(t, held.Release())
		require.Contains(t, strings.Join(log.Take(), "\n"), `peer gone`)
	})
}

// The log says why an Acquire does not return: after each doubling of the wait, and
// only for the first waiter.
func TestLogOfWaits(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		var log nodetest.Journal
		one := g.startLogging(1, log.Logger())
		g.startLogging(2, nil)
		g.startLogging(3, nil)
		require.NoError(t, one.Ready(t.Context()))
		held := g.acquire(2, "x")
		campaign, resign := context.WithCancel(t.Context())
		leader := g.campaignLater(campaign, 3, "leads")
		other := g.campaignLater(campaign, 1, "leads") // not logged: a candidate may wait forever
		log.Take()
		ctx, cancel := context.WithCancel(t.Context())
		waits := []<-chan outcome{g.acquireLater(ctx, 1, "x")}
		synctest.Wait()
		waits = append(waits, g.acquireLater(t.Context(), 1, "x"))
		time.Sleep(9 * time.Second)
		require.Equal(t, []string{""}, log.Take())
		time.Sleep(time.Minute)
		var want []string
		for _, s := range []int{18, 28, 48} { // the node checks every 10 s
			want = append(want, fmt.Sprintf(`level=WARN msg="lock is waited for" node=1 group=billing lock=x waited=%ds for="2 (web-2, silent for`, s))
		}
		for i, line := range log.Take() { // 2 was heard when its wait began, or once more, a tenth of a second later
			require.Equal(t, want[i], line[:strings.LastIndex(line, " ")])
		}
		cancel()
		require.ErrorIs(t, (<-waits[0]).err, context.Canceled)
		require.NoError(t, held.Release())
		h := (<-waits[1]).held
		waits[1] = g.acquireLater(t.Context(), 1, "x")
		time.Sleep(20 * time.Second)
		require.Equal(t, []string{`level=WARN msg="lock is waited for" node=1 group=billing lock=x waited=19s holder=1 name=web-1 held=19s`}, log.Take())
		require.NoError(t, h.Release())
		require.NoError(t, (<-waits[1]).held.Release())
		resign()
		require.ErrorIs(t, <-other.done, context.Canceled)
		leader.returns(t)
	})
}

// untimed cuts off what is different in each run: how long a view change took.
func untimed(lines []string) []string {
	for i, line := range lines {
		if at := strings.Index(line, " took="); at >= 0 {
			lines[i] = line[:at+len(" took=")]
		}
	}
	return lines
}

// without returns the lines that do not contain the text.
func without(lines []string, text string) []string {
	return slices.DeleteFunc(lines, func(line string) bool { return strings.Contains(line, text) })
}
