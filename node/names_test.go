package node_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Each member knows the names of the others, even after one of them has restarted with another
// name, and errors contain the names.
func TestMemberNames(t *testing.T) {
	bubble(t, strict, central.At(1), memlink.Config{}, func(t *testing.T, g *group) {
		g.open(3)
		time.Sleep(time.Second)
		for _, n := range g.all {
			id := n.id
			st := n.Status()
			require.Equal(t, fmt.Sprint("web-", id), st.Name)
			for _, p := range st.Peers {
				require.Equal(t, fmt.Sprint("web-", p.ID), p.Name)
				require.Empty(t, p.Address)
			}
		}
		g.crash(3)
		g.startWith(3, node.Config{Algorithm: g.algorithm, Name: "web-new"})
		held := g.acquire(3, "x")
		_, err := g.mutex(1, "x").TryAcquire(t.Context())
		require.EqualError(t, err, `node: lock "x": lock is busy: held by web-new (node 3) for 0s`)
		_, err = g.mutex(1, "x").Acquire(nodetest.ContextFor(t, 10*time.Millisecond))
		require.ErrorContains(t, err, "waiting for 3 (web-new, heard just now): held by web-new (node 3) for 0s")
		_, err = g.mutex(1, "x").Acquire(nodetest.ContextFor(t, time.Second))
		require.ErrorContains(t, err, "held by web-new (node 3) for 1s: context deadline exceeded")
		require.ErrorContains(t, err, "waiting for 3 (web-new, silent for")
		require.NoError(t, held.Release())
	})
}

// OpenStrict refuses a name that cannot be shown.
func TestMemberNamesMisuse(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	for _, name := range []string{"two\nlines", "\x1b[31m", "\u202eleft", "\xff", strings.Repeat("n", 65)} {
		_, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Name: name})
		require.ErrorIs(t, err, dmutex.ErrMisuse, "%q", name)
	}
	n, err := node.OpenStrict(t.Context(), 1, []dmutex.NodeID{1}, net.Link(1), node.Config{Name: "Büro 7"})
	require.NoError(t, err)
	require.NoError(t, n.Close(context.Background()))
}

// In the lease mode the record has the names of all members.
func TestLeaseNames(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		for range 2 {
			g.join()
		}
		for _, s := range g.all {
			require.NoError(t, s.Ready(t.Context()))
		}
		time.Sleep(leaseOf / 10)
		for _, n := range g.all {
			st := n.Status()
			require.Contains(t, st.Name, "/", "the host and the process")
			require.Equal(t, fmt.Sprintf("%s (%d)", st.Name, st.Peers[0].ID), st.Peers[0].Name, "both have one name")
		}
		value, _, err := g.store.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, strings.Count(string(value), fmt.Sprintf(" %q\n", g.all[0].Status().Name)))
	})
}

// A member that was excluded keeps its name where a lock waits for it: in errors, in the status and
// in the log, also at a process that joined after that, and at the process itself in its next life.
func TestFormerNames(t *testing.T) {
	bubbleLease(t, central.New, func(t *testing.T, g *group) {
		log := new(nodetest.Journal)
		g.log = log.Logger()
		for i := range 3 {
			g.name = fmt.Sprint("web-", i+1)
			g.join()
		}
		one, two, three := g.all[0], g.all[1], g.all[2]
		one.sees(3)
		members := one.Status().View.Members
		theirs := nameAt(one.Self(), members)
		says := func(s *member, who string) {
			t.Helper()
			require.Equal(t, []string{who}, s.Mutex(theirs).Status().FormerNames)
			_, err := s.Mutex(theirs).TryAcquire(t.Context())
			require.ErrorIs(t, err, node.ErrBusy)
			require.ErrorContains(t, err, "waiting for the leases of former members "+who+", which may hold it: at most ")
		}

		three.acquire(theirs)
		who := fmt.Sprintf("web-3 (node %v)", three.Self())
		three.crash()
		one.sees(2)
		two.sees(2)
		says(one, who)
		says(two, who)
		require.Contains(t, log.String(), `left="[`+who+`]"`)
		g.name = "web-4"
		four := g.join()
		require.NoError(t, four.Ready(t.Context()))
		says(four, who)
		require.NoError(t, one.acquire(theirs).Release())
		four.close()

		two.acquire(theirs)
		former := two.Self()
		two.isolate(true)
		one.sees(1)
		two.isolate(false)
		two.rejoins(former)
		says(two, fmt.Sprintf("web-2 (node %v)", former))
	})
}
