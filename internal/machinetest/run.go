// Package machinetest is what the tests of several machines share beside
// package dmutextest. A [Probe] looks into a machine or breaks one of its rules
// from outside, [Kill] breaks its rules in the source: something must notice.
// [Explore] and [Run] are long and random runs of groups.
package machinetest

import (
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// Long skips a test that takes long, unless DMUTEX_LONG=1.
func Long(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("takes long; set DMUTEX_LONG=1")
	}
}

// Explore explores a group to the end and finds nothing wrong, nor any fence
// left out.
func Explore(t *testing.T, c dmutextest.Config) dmutextest.Report {
	t.Helper()
	r, err := dmutextest.Explore(c)
	require.NoError(t, err)
	t.Log(r)
	require.True(t, r.Complete, r)
	require.True(t, r.Dense, r)
	return r
}

// Run makes a random run in which each of n nodes enters so many times, in the
// FIFO network, and calls granted at each grant.
func Run(t *testing.T, algorithm dmutex.Algorithm, n, entries int, seed uint64, granted func(node dmutex.NodeID, m dmutex.Machine)) {
	t.Helper()
	members := dmutextest.Nodes(n)
	machines := make([]dmutex.Machine, n)
	left := make([]int, n)
	wire := make([][]dmutex.Message, n*n) // by channel
	for i, self := range members {
		m, err := algorithm(dmutex.Start{Self: self, Members: members})
		require.NoError(t, err)
		machines[i], left[i] = m, entries
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for {
		var can []func()
		do := func(i int, input func() ([]dmutex.Message, error)) {
			can = append(can, func() {
				m := machines[i]
				was := m.Phase()
				out, err := input()
				require.NoError(t, err, "seed %d", seed)
				for _, o := range out {
					channel := i*n + int(o.To) - 1
					wire[channel] = append(wire[channel], o.Clone())
				}
				if was != dmutex.Held && m.Phase() == dmutex.Held {
					granted(members[i], m)
				}
			})
		}
		for i, m := range machines {
			switch {
			case m.Phase() == dmutex.Held:
				do(i, m.Release)
			case m.Phase() == dmutex.Idle && left[i] > 0:
				do(i, func() ([]dmutex.Message, error) {
					left[i]--
					return m.Request()
				})
			}
		}
		for k, queue := range wire {
			if len(queue) > 0 {
				do(k%n, func() ([]dmutex.Message, error) {
					wire[k] = queue[1:]
					return machines[k%n].Handle(queue[0])
				})
			}
		}
		if len(can) == 0 {
			for i, m := range machines {
				require.Equal(t, dmutex.Idle, m.Phase(), "seed %d: node %d", seed, members[i])
			}
			return
		}
		can[random.IntN(len(can))]()
	}
}
