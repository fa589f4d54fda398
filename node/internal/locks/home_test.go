package locks

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

func members(n int) (all []dmutex.NodeID) {
	for id := range dmutex.NodeID(n) {
		all = append(all, id+1)
	}
	return all
}

// All members must compute the same homes, so these results never change.
func TestHomeIsStable(t *testing.T) {
	for _, tt := range []struct {
		name    string
		members []dmutex.NodeID
		home    dmutex.NodeID
	}{
		{"", members(3), 2},
		{"x", members(1), 1},
		{"x", members(2), 2},
		{"x", members(3), 2},
		{"x", members(64), 16},
		{"nightly backup", members(3), 2},
		{"a\xffé", members(5), 4},
		{"x", []dmutex.NodeID{3, 1<<64 - 1, 1 << 63}, 3},
	} {
		require.Equal(t, tt.home, Home(tt.name, tt.members), "%q, %v", tt.name, tt.members)
		reversed := slices.Clone(tt.members)
		slices.Reverse(reversed)
		require.Equal(t, tt.home, Home(tt.name, reversed), "the order of members does not matter")
	}
}

// Each member is the home of about as many locks, even if the names of the locks are alike. When a
// member comes or goes, only locks that begin there move.
func TestHomesAreEven(t *testing.T) {
	const names = 10_000
	for _, format := range []string{"%d", "user/%d/profile", "lock %08d of a group with a long name"} {
		for n := 1; n <= 9; n++ {
			all := members(n)
			at := make(map[dmutex.NodeID]int)
			for i := range names {
				name := fmt.Sprintf(format, i)
				home := Home(name, all)
				at[home]++
				gone := all[i%n]
				left := slices.DeleteFunc(slices.Clone(all), func(id dmutex.NodeID) bool { return id == gone })
				if home != gone {
					require.Equal(t, home, Home(name, left))
				}
				if more := Home(name, append(slices.Clone(all), 77)); more != 77 {
					require.Equal(t, home, more)
				}
			}
			for id, count := range at {
				require.InDelta(t, names/n, count, 0.1*names/float64(n), "member %v of %d, %q", id, n, format)
			}
			require.Len(t, at, n)
		}
	}
}
