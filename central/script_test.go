package central_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
)

func TestScripts(t *testing.T) {
	for _, tt := range []struct {
		file      string
		algorithm dmutex.Algorithm
	}{
		{"textbook.txt", central.New},
		{"cancel.txt", central.New},
		{"carried-over.txt", central.At(3)},
	} {
		t.Run(tt.file, func(t *testing.T) { dmutextest.TestScript(t, tt.algorithm, "testdata/"+tt.file) })
	}
}

// "2 messages for enter, 1 message for exit" (lecture notes), and none for
// the coordinator itself.
func TestMessages(t *testing.T) {
	const requests = 3
	for n := 1; n <= 9; n++ {
		r, err := dmutextest.Walk(dmutextest.Config{
			Algorithm: central.New,
			Members:   dmutextest.Nodes(n),
			Requests:  []int{requests},
			Network:   unordered,
		}, 1, 10)
		require.NoError(t, err)
		require.Equal(t, 3*requests*(n-1), r.Least, "%d nodes", n)
		require.Equal(t, r.Least, r.Greatest, "%d nodes", n)
		require.True(t, r.Dense)
	}
}

// Groups too large to explore, with cancels.
func TestWalk(t *testing.T) {
	r, err := dmutextest.Walk(dmutextest.Config{
		Algorithm: central.At(6),
		Members:   []dmutex.NodeID{80, 3, 12, 32, 6, 5},
		Holder:    12,
		Fence:     9,
		Requests:  []int{5},
		Cancels:   []int{3},
		Network:   unordered,
	}, 1, 50)
	require.NoError(t, err)
	require.True(t, r.Dense)
}

// The coordinator and the holder know who holds.
func TestHolder(t *testing.T) {
	members := dmutextest.Nodes(3)
	holder := func(self, holder dmutex.NodeID) dmutex.NodeID {
		m, err := central.New(dmutex.Start{Self: self, Members: members, Holder: holder})
		require.NoError(t, err)
		return m.(*central.Machine).Holder()
	}
	for _, tt := range []struct{ self, held, want dmutex.NodeID }{
		{1, dmutex.None, dmutex.None},
		{1, 1, 1},
		{1, 2, 2},
		{2, 2, 2},
		{3, 2, dmutex.None},
	} {
		require.Equal(t, tt.want, holder(tt.self, tt.held), "at %d while %d holds", tt.self, tt.held)
	}
}

func TestCoordinatorMustBeMember(t *testing.T) {
	_, err := central.At(4)(dmutex.Start{Self: 1, Members: dmutextest.Nodes(3)})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	require.ErrorContains(t, err, "4 is not among")
}
