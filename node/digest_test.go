package node_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// LESSONS L60, L62: nodes that do not mean the same group do not meet.
func TestStrangers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		differ string
		change func(*node.Config)
	}{
		{"group", "Group", func(c *node.Config) { c.Group = "other" }},
		{"members", "Members", func(c *node.Config) { c.Members = []dmutex.NodeID{1, 2, 3} }},
		{"fence", "Fence", func(c *node.Config) { c.Fence = 1 }},
		{"deadlock", "Deadlock", func(c *node.Config) { c.Deadlock = time.Second }},
		{"several", "Members, Group, Fence", func(c *node.Config) { c.Members, c.Group, c.Fence = []dmutex.NodeID{1, 2, 9}, "other", 1 }},
		{"algorithm", "Algorithm", func(c *node.Config) { c.Algorithm = central.New }},
		{"coordinator", "Algorithm", func(c *node.Config) { c.Algorithm = central.At(2) }},
		{"option", "Algorithm", func(c *node.Config) { c.Algorithm = ricart.Carvalho }},
		{"quorums", "Algorithm", func(c *node.Config) {
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
			}
			bubble(t, a, memlink.Config{}, func(t *testing.T, g *group) {
				g.members = []dmutex.NodeID{1, 2}
				g.start(1)
				var log journal
				cfg := node.Config{Self: 2, Members: g.members, Algorithm: a, Link: g.net.Link(2), Logger: log.logger()}
				tc.change(&cfg)
				n, err := node.Open(t.Context(), cfg)
				require.NoError(t, err)
				g.nodes[2] = n
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err = n.Mutex("x").Acquire(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorIs(t, err, node.ErrConfig)
				why := "node 1: it is configured for another group: all members must agree on Members, Algorithm, Group, Fence and Deadlock; here and there are different: " + tc.differ
				require.ErrorContains(t, err, "node 2 has not yet met ")
				require.ErrorContains(t, err, why+": context deadline exceeded")
				require.ErrorIs(t, n.Status().Peers[0].Err, node.ErrConfig)
				require.Greater(t, n.Status().Refused, uint64(10))
				lines := log.take()
				require.Len(t, lines, 2) // the first is that it was opened
				require.Contains(t, lines[1], `msg="peer is configured differently" node=2 `)
				require.Contains(t, lines[1], `peer=1 err="`+why+`"`)
			})
		})
	}
}

// Whoever comes back with the right configuration is met, and what was said of it
// is forgotten.
func TestConfigMended(t *testing.T) {
	bubble(t, ricart.New, memlink.Config{}, func(t *testing.T, g *group) {
		g.members = []dmutex.NodeID{1, 2}
		var log journal
		one := g.startLogging(1, log.logger())
		for range 2 {
			g.start(2) // its Group has no name
			time.Sleep(time.Minute)
			require.ErrorIs(t, one.Status().Peers[0].Err, node.ErrConfig)
			g.close(2)
		}
		g.startLogging(2, nil)
		require.NoError(t, one.Ready(t.Context()))
		require.NoError(t, one.Status().Peers[0].Err)
		require.Len(t, log.take(), 4) // opened, differs, met, ready
	})
}
