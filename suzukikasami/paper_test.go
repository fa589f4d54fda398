package suzukikasami

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
)

// The node with the token excludes all others.
func TestExcludes(t *testing.T) {
	machinetest.Excludes(t, New, dmutex.Start{}, [][]dmutex.NodeID{{2, 3}, nil, nil})
	machinetest.Excludes(t, New, dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
	machinetest.Excludes(t, At(3), dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, nil, {1, 2}})
	machinetest.Excludes(t, New, dmutex.Start{Home: 1, Holder: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
}

// N messages an entry at most: N-1 REQUEST and a TOKEN, or none for the node
// that has the token.
func TestMessages(t *testing.T) {
	const requests = 5
	for n := 1; n <= 12; n++ {
		for seed := range uint64(20) {
			r, err := dmutextest.Walk(dmutextest.Config{
				Algorithm: New,
				Members:   dmutextest.Nodes(n),
				Requests:  []int{requests},
				Network:   dmutextest.Network{Unordered: true},
			}, seed, 1)
			require.NoError(t, err)
			require.Zero(t, r.Least%n, "%d nodes", n)
			require.LessOrEqual(t, r.Greatest, n*requests*n, "%d nodes", n)
		}
	}
}

// The token begins with the named member, unless the lock is carried over.
func TestAt(t *testing.T) {
	for _, tt := range []struct {
		at, holder, want dmutex.NodeID
	}{
		{want: 1},
		{at: 2, want: 2},
		{holder: 3, want: 3},
		{at: 2, holder: 3, want: 3},
		{at: 4, want: 1}, // not a member
	} {
		for _, self := range dmutextest.Nodes(3) {
			algorithm := New
			if tt.at != dmutex.None {
				algorithm = At(tt.at)
			}
			m, err := algorithm(dmutex.Start{Self: self, Members: dmutextest.Nodes(3), Holder: tt.holder})
			require.NoError(t, err)
			require.Equal(t, self == tt.want, m.(*machine).token)
		}
	}
}
