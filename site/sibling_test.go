package site_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/internal/kit/algorithms"
	"github.com/dmutex/dmutex/lamport"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/ring"
	"github.com/dmutex/dmutex/site"
)

// Machines that share with siblings do what they would do alone. Random runs of some locks
// compare each machine with a twin that shares nothing. The twin is cloned at every step,
// as in an exploration.
func TestSiblingsAreNotSeen(t *testing.T) {
	const seed, locks, steps = 1, 4, 20_000
	for _, kind := range append(slices.Clone(algorithms.All),
		algorithms.Algorithm{Name: "central.At", Algorithm: central.At(2)},
		algorithms.Algorithm{Name: "maekawa.With", Algorithm: maekawa.With(func(dmutex.NodeID) []dmutex.NodeID { return []dmutex.NodeID{2, 3} })},
		algorithms.Algorithm{Name: "ring.Order", Algorithm: ring.Order(2, 1, 3, 4)},
	) {
		t.Run(kind.Name, func(t *testing.T) {
			members := members(1, 2, 3, 4)
			n := len(members)
			var (
				alone, sharing [locks][]dmutex.Machine
				sibling        = make([]dmutex.Machine, n)
				wire           = map[[3]int][]dmutex.Message{} // by lock, from and to
			)
			for k := range locks {
				for i, id := range members {
					a, err := kind.Algorithm(dmutex.Start{Self: id, Members: members})
					require.NoError(t, err)
					s, err := kind.Algorithm(dmutex.Start{Self: id, Members: members, Sibling: sibling[i]})
					require.NoError(t, err)
					sibling[i] = s
					alone[k], sharing[k] = append(alone[k], a), append(sharing[k], s)
				}
			}
			r := rand.New(rand.NewPCG(seed, 0))
			for step := range steps {
				k, i := r.IntN(locks), r.IntN(n)
				input := func(m dmutex.Machine) ([]dmutex.Message, error) { return m.Release() }
				switch phase := alone[k][i].Phase(); {
				case r.IntN(3) > 0: // a message, if there is one
					route := [3]int{k, r.IntN(n), i}
					if len(wire[route]) == 0 {
						continue
					}
					msg := wire[route][0]
					wire[route] = wire[route][1:]
					input = func(m dmutex.Machine) ([]dmutex.Message, error) { return m.Handle(msg.Clone()) }
				case phase == dmutex.Idle:
					input = dmutex.Machine.Request
				case phase == dmutex.Waiting:
					if r.IntN(4) > 0 {
						continue
					}
					input = dmutex.Machine.Cancel
				}
				alone[k][i] = alone[k][i].Clone()
				want, err := input(alone[k][i])
				require.NoError(t, err)
				got, err := input(sharing[k][i])
				require.NoError(t, err)
				where := fmt.Sprintf("seed %d, step %d", seed, step)
				for k := range locks {
					require.Equal(t, state(t, alone[k][i]), state(t, sharing[k][i]), where)
				}
				require.Equal(t, fmt.Sprint(want), fmt.Sprint(got), where) // AppendText has not changed the output
				for _, m := range want {
					route := [3]int{k, i, int(m.To) - 1}
					wire[route] = append(wire[route], m.Clone())
				}
			}
		})
	}
}

func state(t *testing.T, m dmutex.Machine) string {
	b, err := m.AppendText(nil)
	require.NoError(t, err)
	return string(b)
}

// Siblings are of one node and one group. The order of the members does not matter.
func TestSiblingsAreOfOneGroup(t *testing.T) {
	sibling, err := lamport.New(dmutex.Start{Self: 2, Members: members(3, 2)})
	require.NoError(t, err)
	s := newSite(t, dmutex.Start{Self: 2, Members: members(2, 3), Sibling: sibling})
	require.Equal(t, members(2, 3), s.Members())
	require.Equal(t, 0, s.Place())
	require.Equal(t, members(3), s.Peers())
	for _, start := range []dmutex.Start{
		{Self: 3, Members: members(2, 3)},
		{Self: 2, Members: members(1, 2)},
		{Self: 2, Members: members(1, 2, 3)},
		{Self: 2, Members: members(2, 3), Fence: 1},
		{Self: 2, Members: members(2, 3), Limit: 100},
	} {
		start.Sibling = sibling
		_, err := site.New(start)
		require.ErrorIs(t, err, dmutex.ErrMisuse)
		require.ErrorContains(t, err, "Start.Sibling belongs to another node or group")
	}
}
