package node_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/nodetest"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L60, L62: nodes with different settings do not meet.
func TestStrangers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		differ string
		change func(*[]dmutex.NodeID, *node.Config)
	}{
		{"group", `here "group \"other\"", there "group \"\""`, func(m *[]dmutex.NodeID, c *node.Config) { c.Group = "other" }},
		{"members", `here "members [1 2 3]", there "members [1 2]"`, func(m *[]dmutex.NodeID, c *node.Config) { *m = []dmutex.NodeID{1, 2, 3} }},
		{"deadlock", `here "deadlock 1s", there "deadlock 0s"`, func(m *[]dmutex.NodeID, c *node.Config) { c.Deadlock = time.Second }},
		{"several", `here "group \"other\", members [1 2 9]", there "group \"\", members [1 2]"`, func(m *[]dmutex.NodeID, c *node.Config) { *m, c.Group = []dmutex.NodeID{1, 2, 9}, "other" }},
		{"algorithm", `here "algorithm central/1", there "algorithm ricart/1"`, func(m *[]dmutex.NodeID, c *node.Config) { c.Algorithm = central.New }},
		{"coordinator", `here "algorithm central/1 coordinator 2", there "algorithm central/1"`, func(m *[]dmutex.NodeID, c *node.Config) { c.Algorithm = central.At(2) }},
		{"order", `here "algorithm ring/1 order 2,1", there "algorithm ring/1"`, func(m *[]dmutex.NodeID, c *node.Config) { c.Algorithm = ring.Order(2, 1) }},
		{"option", `here "algorithm carvalho/1", there "algorithm ricart/1"`, func(m *[]dmutex.NodeID, c *node.Config) { c.Algorithm = ricart.Carvalho }},
		{"quorums", `here "algorithm maekawa/1 quorums `, func(m *[]dmutex.NodeID, c *node.Config) {
			c.Algorithm = maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID {
				return [][]dmutex.NodeID{{1, 2}, {1}}[site-1]
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := ricart.New
			switch tc.name {
			case "coordinator":
				a = central.New
			case "quorums":
				a = maekawa.New
			case "order":
				a = ring.New
			}
			bubble(t, strict, a, memlink.Config{}, func(t *testing.T, g *group) {
				g.members = []dmutex.NodeID{1, 2}
				g.start(1)
				var log nodetest.Journal
				members, cfg := g.members, node.Config{Algorithm: a, Logger: log.Logger()}
				tc.change(&members, &cfg)
				g.members = members
				n := g.startWith(2, cfg)
				_, err := n.Mutex("x").Acquire(nodetest.ContextFor(t, time.Minute))
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, node.ErrConfig)
				why := node.ErrConfig.Error() + "; " + tc.differ
				require.ErrorContains(t, err, `lock "x": waiting for members 1 (`+why)
				var peer *node.Error
				require.ErrorAs(t, err, &peer)
				require.EqualValues(t, 1, peer.Peer)
				require.ErrorIs(t, n.Status().Peers[0].Err, node.ErrConfig)
				require.Positive(t, n.Status().Refused)
				var told []string
				for _, line := range log.Take() {
					if strings.Contains(line, `msg="peer is configured differently" node=2 `) {
						told = append(told, line)
					}
				}
				require.Len(t, told, 1)
				require.Contains(t, told[0], "peer=1 err="+strings.TrimSuffix(strconv.Quote(why), `"`))
			})
		})
	}
}

// A peer that comes back with the right configuration is met, and its error is
// forgotten.
func TestConfigMended(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log nodetest.Journal
		one := g.startLogging(1, log.Logger())
		for range 2 {
			g.start(2) // its Group has no name
			time.Sleep(time.Minute)
			require.ErrorIs(t, one.Status().Peers[0].Err, node.ErrConfig)
			g.close(2)
		}
		g.startLogging(2, nil)
		require.NoError(t, one.Ready(t.Context()))
		require.NoError(t, one.Status().Peers[0].Err)
		require.Len(t, without(log.Take(), "waiting for members"), 4) // opened, differs, met, acts
	})
}

// If a member restarts with other settings, the member and the settled members report it. The
// settled members answer its greeting, although they refuse it.
func TestRestartedWithOtherConfig(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2, 3}
		for _, id := range g.members {
			g.start(id)
		}
		for _, id := range g.members {
			require.NoError(t, g.node(id).Ready(t.Context()))
		}
		g.crash(3)
		n := g.startWith(3, node.Config{})
		require.ErrorIs(t, n.Ready(nodetest.ContextFor(t, time.Minute)), node.ErrConfig)
		for _, p := range n.Status().Peers {
			require.ErrorContains(t, p.Err, `here "algorithm central/1", there "algorithm ricart/1"`)
		}
		require.ErrorIs(t, g.node(1).Status().Peers[1].Err, node.ErrConfig)
		require.NoError(t, g.node(1).Status().Peers[0].Err)
	})
}

// Two releases work together if they have a version of the protocol in common.
func TestReleases(t *testing.T) {
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		build(t, 1, 1)
		g.start(1)
		build(t, 1, 2)
		g.start(2)
		require.NoError(t, g.acquire(1, "x").Release())
		require.NoError(t, g.acquire(2, "x").Release())
	})
	bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		build(t, 1, 1)
		g.start(1)
		build(t, 2, 2)
		g.start(2)
		for _, n := range g.all {
			_, err := n.Mutex("x").Acquire(nodetest.ContextFor(t, time.Minute))
			require.ErrorIs(t, err, node.ErrConfig)
		}
		require.ErrorContains(t, g.node(1).Status().Peers[0].Err, "it speaks versions 2 to 2 of the protocol, and this node versions 1 to 1: upgrade by way of a release that speaks a version of both")
		require.ErrorContains(t, g.node(2).Status().Peers[0].Err, "it speaks versions 1 to 1 of the protocol, and this node versions 2 to 2: ")
	})
}

// In a half-finished upgrade a process starts that can speak with one member and not with the other. The
// members go on without it, and it comes in when the upgrade is finished.
func TestHalfUpgraded(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		bubble(t, strict, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
			g.members = []dmutex.NodeID{1, 2, 3}
			for _, id := range g.members {
				build(t, 1, min(uint64(id), 2))
				g.start(id)
			}
			require.NoError(t, g.acquire(3, "x").Release())
			if leaves {
				g.close(3)
			} else {
				g.crash(3)
			}
			build(t, 2, 2)
			g.start(3)
			require.ErrorIs(t, g.node(3).Ready(nodetest.ContextFor(t, time.Minute)), node.ErrConfig)
			for _, id := range []dmutex.NodeID{1, 2} {
				require.NoError(t, g.mutex(id, "x").Do(nodetest.ContextFor(t, time.Minute), func(context.Context, uint64) error { return nil }))
			}
			require.Less(t, g.node(2).Status().View.Changes, uint64(10))
			g.close(1)
			build(t, 2, 2)
			g.start(1)
			for _, id := range g.members {
				require.NoError(t, g.node(id).Ready(nodetest.ContextFor(t, time.Minute)))
				require.NoError(t, g.acquire(id, "x").Release())
			}
		})
	}
}

// If the settings of a process differ from those of the group, its Acquire fails with ErrConfig,
// which names both values.
func TestLeaseOtherSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		alter func(*node.Config)
		say   []string // both sides' values
	}{
		"algorithm": {func(c *node.Config) { c.Algorithm = central.New }, []string{`here "algorithm central/1", there "algorithm ricart/1"; the record has members: start this process with what they have, or close all of them first; only if they were killed, delete the record`}},
		"lease":     {func(c *node.Config) { c.Lease *= 2 }, []string{"and Lease must be the same", `here "lease 20s", there "lease 10s"`}},
		"deadlock":  {func(c *node.Config) { c.Deadlock = time.Second }, []string{"deadlock 0s", "deadlock 1s"}},
		"group":     {func(c *node.Config) { c.Group = "other" }, []string{"other"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
				all := g.open(1)
				_, err := g.join(tc.alter).Mutex("x").Acquire(nodetest.ContextFor(t, 5*time.Second))
				require.ErrorIs(t, err, node.ErrConfig)
				for _, text := range tc.say {
					require.ErrorContains(t, err, text)
				}
				require.NoError(t, all[0].acquire("x").Release())
			})
		})
	}
}

// With a store, the record has the versions that its members speak.
func TestReleasesByRecord(t *testing.T) {
	bubbleLease(t, ricart.New, func(t *testing.T, g *group) {
		build(t, 1, 1)
		one := g.open(1)[0]
		build(t, 1, 2)
		two := g.join()
		require.NoError(t, two.Ready(t.Context()))
		require.NoError(t, one.acquire("x").Release())
		require.NoError(t, two.acquire("x").Release())
		build(t, 2, 2)
		three := g.join()
		require.ErrorIs(t, three.Ready(t.Context()), node.ErrConfig)
		require.ErrorContains(t, three.Ready(t.Context()), "member 1 speaks versions 1 to 1 of the protocol, and this node versions 2 to 2: upgrade by way of")
		require.NoError(t, one.Close(t.Context()))
		four := g.join()
		require.NoError(t, four.Ready(t.Context()))
		require.NoError(t, four.acquire("x").Release())
	})
}
