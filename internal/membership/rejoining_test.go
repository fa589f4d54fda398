package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
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
