package node_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/epochs"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/internal/membership"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A lock that uses up the fences of its epoch asks for another view by itself, and its
// callers notice nothing: every fence is higher than the last.
func TestFencesUsedUp(t *testing.T) {
	for _, a := range algorithms.All {
		t.Run(a.Name, func(t *testing.T) {
			nearTheEnd := func(s dmutex.Start) (dmutex.Machine, error) {
				if s.Limit > 0 {
					s.Known = max(s.Known, s.Limit-20)
				}
				return a.Algorithm(s)
			}
			bubble(t, strict, nearTheEnd, memlink.Config{}, func(t *testing.T, g *group) {
				nodetest.Today()
				g.open(3)
				before, last := g.node(1).Status().View.Changes, uint64(0)
				for i := range 60 {
					held := g.acquire(dmutex.NodeID(i%3+1), "x")
					require.Greater(t, held.Fence(), last)
					last = held.Fence()
					require.NoError(t, held.Release())
				}
				require.GreaterOrEqual(t, g.node(1).Status().View.Changes, before+3)
			})
		})
	}
}

// If epochs are more than a minute ahead of a member's clock, its log and its Status say so.
func TestAhead(t *testing.T) {
	for ahead, says := range map[time.Duration]bool{30 * time.Second: false, 2 * time.Hour: true} {
		bubble(t, strict, algorithms.All[0].Algorithm, memlink.Config{}, func(t *testing.T, g *group) {
			nodetest.Today()
			var log nodetest.Journal
			g.members = []dmutex.NodeID{1, 2}
			g.start(1)
			clock := time.Since(time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)) + ahead
			g.startWith(2, node.Config{
				Algorithm: g.algorithm, Fence: epochs.First(uint64(clock.Milliseconds())), Logger: slog.New(slog.NewTextHandler(&log, nil)),
			})
			held := g.acquire(1, "x")
			require.Greater(t, epochs.Of(held.Fence()), uint64(clock.Milliseconds())-1)
			require.NoError(t, held.Release())
			for _, n := range g.all {
				require.InDelta(t, map[bool]time.Duration{true: ahead}[says], n.Status().View.Ahead, float64(time.Second))
			}
			g.close(2)
			require.Equal(t, says, strings.Contains(log.String(), "epochs are ahead of the clock"), &log)
		})
	}
}

// OpenStrict refuses more members than there can be, and says what to do instead.
func TestTooManyMembers(t *testing.T) {
	net, err := memlink.New(memlink.Config{})
	require.NoError(t, err)
	var members []dmutex.NodeID
	for id := range dmutex.NodeID(membership.MaxMembers + 1) {
		members = append(members, id+1)
	}
	_, err = node.OpenStrict(context.Background(), 1, members, net.Link(1), node.Config{Algorithm: algorithms.All[0].Algorithm})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "a group has at most 64 members, not 65: let fewer processes be members, and take locks for the others")
}
