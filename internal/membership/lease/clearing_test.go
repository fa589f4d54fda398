package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/leases"
)

// Rule 5.4: an exclusion is cleared D after it was known first. A later one does not delay it, and is
// cleared D after that was known itself. The sleep of the machine does not count.
func TestClearing(t *testing.T) {
	const d = 3060606061
	require.Equal(t, int64(d), leases.Drain(testLease))
	c := newClearing(testLease)
	records := []Record{{}, {Epoch: 5, Unclean: 5}, {Epoch: 6, Unclean: 6}, {Epoch: 7, Unclean: 6}}
	cleared := func(now int64, r *Record) uint64 {
		if c.isDue(now, r.Unclean) {
			return c.due
		}
		return 0
	}
	c.knows(10, testLease, &records[0], &records[1])
	require.Zero(t, cleared(10+d-1, &records[1]))
	c.knows(second, testLease, &records[1], &records[2])
	c.knows(2*second, testLease, &records[2], &records[3])
	require.EqualValues(t, 5, cleared(10+d, &records[3]))
	c.cleared = 5
	require.Zero(t, cleared(second+d-1, &records[3]))
	c.Leapt(second)
	require.Zero(t, cleared(2*second+d-1, &records[3]))
	require.EqualValues(t, 6, cleared(2*second+d, &records[3]))
	c.cleared = 6
	require.Zero(t, cleared(due.Never-d, &records[3]))
}

// The leases of a group that this life cannot join may be longer. When they have ended, its own count.
func TestClearingLongerLease(t *testing.T) {
	c := newClearing(testLease)
	c.knows(0, testLease, &Record{}, &Record{Epoch: 5, Unclean: 5, Lease: 2 * testLease})
	require.False(t, c.isDue(leases.Drain(2*testLease)-1, 5))
	require.True(t, c.isDue(leases.Drain(2*testLease), 5))
	c.settle(5)
	require.Equal(t, leases.Drain(2*testLease), c.wait)
	c.cleared = 5
	c.settle(5)
	require.Equal(t, leases.Drain(testLease), c.wait)
}

// The store proves that an exclusion is over if all that live are members, have left, or were excluded
// in an epoch that is cleared; but not if a life without a proof was excluded.
func TestClearingProves(t *testing.T) {
	member := Entry{Proof: "member"}
	for name, tt := range map[string]struct {
		names    []string
		unproved uint64
		proved   bool
	}{
		"nobody":            {nil, 0, true},
		"a member":          {[]string{"member"}, 0, true},
		"a former":          {[]string{"member", "former"}, 0, true},
		"one just excluded": {[]string{"excluded"}, 0, false},
		"a stranger":        {[]string{"stranger"}, 0, false},
		"unproved":          {nil, 7, false},
		"unproved, cleared": {nil, 5, true},
	} {
		c := newClearing(testLease)
		c.cleared, c.gone = 5, []gone{{"former", 5}, {"excluded", 7}}
		require.Equal(t, tt.proved, c.proves(7, &Record{Epoch: 8, Unclean: 7, Unproved: tt.unproved, Members: []Entry{member}}, tt.names), name)
	}
	c := newClearing(testLease)
	c.cleared = 7
	require.False(t, c.proves(7, &Record{Epoch: 8, Unclean: 7}, nil), "it is cleared already")
}
