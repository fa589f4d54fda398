package membership

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
)

// A lock's machine begins with those that hold the lock, whether one member has reported it or several. A lock
// that was forgotten is held by nobody.
func TestCarried(t *testing.T) {
	c := Carry([]Holding{
		{1, []Hold{{"a", 1, false}, {"b", 2, true}, {"c", 5, false}, {"e", 1, true}}},
		{2, []Hold{{"b", 2, true}, {"c", 4, false}, {"d", 1, false}}},
		{3, nil},
	})
	want := map[string]dmutex.Start{
		"a": {Holder: 1}, "b": {Sharers: []dmutex.NodeID{1, 2}}, "c": {Holder: 1}, "d": {Holder: 2}, "e": {Sharers: []dmutex.NodeID{1}}, "f": {},
	}
	check := func(held ...string) {
		var all []string
		for lock, got := range c.All() {
			all = append(all, lock)
			got.Sharers = slices.Clip(append([]dmutex.NodeID(nil), got.Sharers...))
			require.Equal(t, want[lock], *got, lock)
		}
		require.ElementsMatch(t, held, all)
		for lock, start := range want {
			var got dmutex.Start
			c.Start(lock, &got)
			if !slices.Contains(held, lock) {
				start = dmutex.Start{}
			}
			require.Equal(t, start, got, lock)
		}
	}
	check("a", "b", "c", "d", "e")
	for range c.All() {
		break
	}
	require.ElementsMatch(t, []string{"b", "c"}, c.Contested())
	c.Forget("a")
	c.Forget("b")
	check("c", "d", "e")
}
