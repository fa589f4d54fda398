package node_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

func (g *group) ask(id dmutex.NodeID, name string) {
	g.t.Helper()
	require.NoError(g.t, g.mutex(id, name).Ask(g.t.Context()))
	synctest.Wait()
}

func isAsked(h lock.Held) bool {
	select {
	case <-node.Asked(h):
		return true
	default:
		return false
	}
}

// LESSONS L48: any node can ask a holder to give the lock back. The holder keeps the lock, and
// several calls count as one.
func TestAsk(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		for _, holder := range g.members {
			for _, asker := range g.members {
				held := g.acquire(holder, "x")
				require.False(t, isAsked(held), "node %d", holder)
				asked := node.Asked(held)
				g.ask(asker, "y")
				require.False(t, isAsked(held), "another lock was asked for")
				g.ask(asker, "x")
				require.True(t, isAsked(held), "node %d by %d", holder, asker)
				<-asked
				g.ask(asker, "x")
				g.ask(holder, "x")
				require.NoError(t, held.Err())
				require.NoError(t, held.Context().Err())
				require.Equal(t, dmutex.Held, g.mutex(holder, "x").Status().Phase)
				require.NoError(t, held.Release())
				require.True(t, isAsked(held))
			}
		}
	})
}

type key struct{} // of a value in a context

// A handle remembers an Ask that came before the holder looked. The Ask does not change its
// context.
func TestAskedBeforeItLooks(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		acquire, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		held, err := g.mutex(2, "x").Acquire(acquire)
		require.NoError(t, err)
		g.ask(1, "x")
		cancel()
		ctx := held.Context()
		require.Equal(t, "value", ctx.Value(key{}))
		_, bounded := ctx.Deadline()
		require.False(t, bounded)
		require.NoError(t, ctx.Err())
		require.NoError(t, held.Err())
		require.True(t, isAsked(held))
		require.Equal(t, ctx, held.Context(), "one context for each handle")
		require.NoError(t, held.Release())
		require.ErrorIs(t, context.Cause(ctx), node.ErrReleased)

		held = g.acquire(2, "x")
		g.ask(1, "x")
		require.NoError(t, held.Release())
		require.True(t, isAsked(held), "it was asked while it held the lock")
		require.ErrorIs(t, context.Cause(held.Context()), node.ErrReleased)

		held = g.acquire(2, "x")
		g.ask(1, "x")
		require.NoError(t, g.node(2).Close(t.Context()))
		require.ErrorIs(t, held.Err(), node.ErrLost)
		require.ErrorIs(t, context.Cause(held.Context()), node.ErrLost)
	})
}

// Only the current hold is asked: no waiter, no later hold and no earlier hold.
func TestAskIsOfTheMoment(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		g.ask(2, "x") // nobody holds x
		held := g.acquire(1, "x")
		waits := []<-chan outcome{g.acquireLater(t.Context(), 1, "x"), g.acquireLater(t.Context(), 2, "x")}
		require.False(t, isAsked(held))
		g.ask(3, "x")
		require.True(t, isAsked(held))
		require.NoError(t, held.Release())
		for range waits {
			var o outcome
			select { // the algorithm decides which is first
			case o = <-waits[0]:
			case o = <-waits[1]:
			}
			require.NoError(t, o.err)
			require.False(t, isAsked(o.held))
			require.NoError(t, o.held.Release())
			require.False(t, isAsked(o.held), "Release is no Ask")
		}

		over := g.acquire(1, "x")
		require.NoError(t, over.Release())
		next := g.acquire(1, "x")
		g.ask(2, "x")
		require.True(t, isAsked(next))
		require.False(t, isAsked(over))
		require.NoError(t, next.Release())
	})
}

// Asking for a lock that nobody holds creates no lock at any node, sends no message of the
// algorithm, and is not an error.
func TestAskLeavesNothing(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		for i := range 1000 {
			g.ask(dmutex.NodeID(i%3+1), fmt.Sprint("name ", i))
		}
		for _, n := range g.all {
			st := n.Status()
			require.NoError(t, st.Err)
			require.Zero(t, st.Locks)
			require.Zero(t, st.Sent)
			require.Zero(t, st.Received)
			require.Zero(t, st.Refused)
		}
		time.Sleep(time.Minute)
		for _, n := range g.all {
			for _, p := range n.Status().Peers {
				require.Zero(t, p.Unacked)
			}
		}
	})
}

// Ask returns an error if it asks nobody.
func TestAskRefuses(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		g.start(1)
		soon := nodetest.ContextFor(t, time.Minute)
		before := time.Now()
		err := g.mutex(1, "x").Ask(soon)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "waiting for members 2 (never heard)")
		require.Equal(t, time.Minute, time.Since(before))

		g.start(2)
		held := g.acquire(2, "x")
		require.ErrorIs(t, g.mutex(1, "x").Ask(soon), context.DeadlineExceeded)
		for _, name := range []string{"", string(make([]byte, 256))} {
			require.ErrorIs(t, g.mutex(1, name).Ask(t.Context()), dmutex.ErrMisuse)
		}
		synctest.Wait()
		require.False(t, isAsked(held))
		g.ask(1, string(make([]byte, 255)))
		require.NoError(t, held.Release())

		n := g.node(1)
		g.close(1)
		require.ErrorIs(t, n.Mutex("x").Ask(t.Context()), node.ErrClosed)
	})
}

// A node that keeps asking while a peer is unreachable gets ErrOverflow in the end. Then no holder
// is asked, not even its own. The group is not harmed.
func TestAskOverflow(t *testing.T) {
	bubble(t, both, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		there, here := g.acquire(3, "there"), g.acquire(1, "here")
		g.net.Cut(1, 2)
		var err error
		name := string(make([]byte, 240))
		for i := 0; err == nil; i++ {
			require.Less(t, i, 100_000, "no bound")
			err = g.mutex(1, name).Ask(t.Context())
		}
		require.ErrorIs(t, err, node.ErrOverflow)
		var peer *node.Error
		require.ErrorAs(t, err, &peer)
		require.EqualValues(t, 2, peer.Peer)
		for _, name := range []string{"there", "here"} {
			require.ErrorIs(t, g.mutex(1, name).Ask(t.Context()), node.ErrOverflow)
		}
		synctest.Wait()
		require.False(t, isAsked(there))
		require.False(t, isAsked(here))
		for _, n := range g.all {
			require.NoError(t, n.Status().Err)
		}
		g.net.Heal()
		time.Sleep(time.Minute)
		g.ask(1, "there")
		require.True(t, isAsked(there))
		require.NoError(t, there.Release())
		require.NoError(t, here.Release())
	})
}

// A holder that cannot be reached is asked when it is back. Ask does not wait for that.
func TestAskUnreachable(t *testing.T) {
	each(t, strict, func(t *testing.T, g *group) {
		g.open(2)
		held := g.acquire(2, "x")
		g.net.Cut(1, 2)
		before := time.Now()
		g.ask(1, "x")
		require.Equal(t, before, time.Now())
		time.Sleep(time.Hour)
		require.False(t, isAsked(held))
		g.net.Heal()
		time.Sleep(time.Minute)
		require.True(t, isAsked(held))
		require.NoError(t, held.Release())
	})
}

// A member that has left does not delay Ask.
func TestAskAfterLeft(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(3)
		held := g.acquire(2, "x")
		require.NoError(t, g.node(3).Close(t.Context()))
		g.ask(1, "x")
		require.True(t, isAsked(held))
		require.NoError(t, held.Release())
	})
}

// Holds without a handle, those of Do and of a leader, ignore Ask.
func TestAskWithoutAHandle(t *testing.T) {
	each(t, both, func(t *testing.T, g *group) {
		g.open(2)
		require.NoError(t, g.node(1).Election("x").Campaign(t.Context(), func(leads context.Context, _ uint64) error {
			return g.mutex(1, "do").Do(t.Context(), func(does context.Context, _ uint64) error {
				for _, name := range []string{"election/x", "do"} {
					g.ask(2, name)
				}
				require.NoError(t, leads.Err())
				require.NoError(t, does.Err())
				return nil
			})
		}))
	})
}
