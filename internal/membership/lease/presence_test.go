package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/membership"
)

// The silence of a peer counts from when the store has answered what was asked after it began: before,
// this life may itself have been cut off. Evidence of death counts at once.
func TestPresence(t *testing.T) {
	const grace = second
	q := new(presence)
	q.adopt(0, &membership.View{Epoch: 5, Members: []membership.Member{{Node: 1, Life: 11}, {Node: 2, Life: 12}, {Node: 3, Life: 13}, {Node: 4, Life: 14}}}, 1)
	p := q.peer(2)
	require.Equal(t, int64(3*grace), q.excludeAt(p, grace, false), "all three are away")
	require.False(t, q.meets(0, 2, 99), "another life")
	require.False(t, q.meets(0, 1, 11), "this life")
	for _, id := range []dmutex.NodeID{2, 3, 4} {
		require.True(t, q.meets(0, id, uint64(10+id)))
	}
	require.Equal(t, int64(due.Never), q.excludeAt(p, grace, false))
	require.EqualValues(t, 2, q.rank(4))

	require.True(t, q.loses(second, 2))
	require.False(t, q.loses(2*second, 2), "it is lost already")
	require.Equal(t, int64(due.Never), q.excludeAt(p, grace, false))
	q.answered(3*second, second-1)
	require.Equal(t, int64(due.Never), q.excludeAt(p, grace, false), "it was asked before the silence")
	q.answered(3*second, second)
	require.Equal(t, int64(3*second+grace), q.excludeAt(p, grace, false))
	require.Equal(t, int64(3*second+2*grace), q.excludeAt(p, grace, true), "a life that has not acted is slower")
	require.EqualValues(t, 1, q.rank(4))
	q.unanswered()
	require.Equal(t, int64(due.Never), q.excludeAt(p, grace, false))

	q.buries(4*second, 2, false)
	require.Equal(t, int64(4*second), q.excludeAt(p, grace, true))
	require.True(t, q.meets(5*second, 2, 12), "the evidence was wrong")
	require.Equal(t, int64(due.Never), q.excludeAt(p, grace, false))
	q.buries(6*second, 2, true)
	require.False(t, q.meets(7*second, 2, 12), "a proof is final")
	require.Equal(t, int64(6*second), q.excludeAt(p, grace, false))

	q.adopt(8*second, &membership.View{Epoch: 6, Members: []membership.Member{{Node: 1, Life: 11}, {Node: 2, Life: 22}, {Node: 3, Life: 13}}}, 1)
	require.Len(t, q.peers, 2)
	require.True(t, q.peer(3).here)
	require.False(t, q.peer(2).dead, "another life")
}
