package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// Rule 5.5: the pause before a process joins again doubles with each exclusion soon after it has joined,
// to a minute, and begins anew after a calm minute.
func TestRejoining(t *testing.T) {
	j, now := newRejoining(), int64(0)
	for _, pause := range []int64{0, 1, 3, 7, 15, 31, 63, 63} {
		j.spend(now)
		require.True(t, j.spent)
		require.Equal(t, now+pause*second, j.joinAt)
		now = j.joinAt
		j.joinedAt = now
	}
	require.Equal(t, 8, j.Exclusions())
	now += 60*second + 1
	j.spend(now)
	require.Equal(t, now, j.joinAt)
}

// A life has missed that it was a member if the number that it asked for was given, and nobody has it. If
// another life has it, it was not done and never will be, also when that one has left. It is missed once.
func TestMissed(t *testing.T) {
	j := newRejoining()
	require.False(t, j.missed(&Record{Highest: 5}), "it has asked for none")
	j.asked = 5
	require.False(t, j.missed(&Record{Highest: 4}))
	require.True(t, j.missed(&Record{Highest: 6, Members: []Entry{{Member: membership.Member{Node: 6}}}}))
	j.spend(0)
	require.False(t, j.missed(&Record{Highest: 6}))
	j.asked = 7
	require.False(t, j.missed(&Record{Highest: 7, Members: []Entry{{Member: membership.Member{Node: 7}}}}))
	require.False(t, j.missed(&Record{Highest: 7}))
	require.Equal(t, dmutex.None, j.asked)
}
