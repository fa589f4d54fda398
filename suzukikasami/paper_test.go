package suzukikasami

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// The node with the token excludes all others.
func TestExcludes(t *testing.T) {
	machinetest.Excludes(t, New, dmutex.Start{}, [][]dmutex.NodeID{{2, 3}, nil, nil})
	machinetest.Excludes(t, New, dmutex.Start{Home: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
	machinetest.Excludes(t, New, dmutex.Start{Home: 1, Holder: 2}, [][]dmutex.NodeID{nil, {1, 3}, nil})
}

// N messages an entry at most: N-1 REQUEST and a TOKEN, or none for the node
// that has the token.
func TestMessages(t *testing.T) {
	const requests = 5
	seeds := uint64(20)
	if quicktest.On() {
		seeds = 4
	}
	for n := 1; n <= 12; n++ {
		for seed := range seeds {
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

// The token begins at the home, unless the lock is carried over.
func TestHome(t *testing.T) {
	for _, tt := range []struct {
		home, holder, want dmutex.NodeID
	}{
		{want: 1},
		{home: 2, want: 2},
		{holder: 3, want: 3},
		{home: 2, holder: 3, want: 3},
	} {
		for _, self := range dmutextest.Nodes(3) {
			m, err := New(dmutex.Start{Self: self, Members: dmutextest.Nodes(3), Home: tt.home, Holder: tt.holder})
			require.NoError(t, err)
			require.Equal(t, self == tt.want, m.(*machine).token)
		}
	}
}
