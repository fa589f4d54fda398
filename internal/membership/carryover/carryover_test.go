package carryover

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A lock's machine begins with those that hold the lock, whether one member has reported it or several. A lock
// that was forgotten is held by nobody.
func TestCarried(t *testing.T) {
	c := Of([]membership.Holding{
		{Node: 1, Holds: []membership.Hold{hold("a", 1, false), hold("b", 2, true), hold("c", 5, false), hold("e", 1, true)}},
		{Node: 2, Holds: []membership.Hold{hold("b", 2, true), hold("c", 4, false), hold("d", 1, false)}},
		{Node: 3},
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

// A member that reports a lock several times is heard once, with its latest hold. What the other
// members hold goes on as if it had reported the lock once, in whatever order the reports came.
func TestHeardOnce(t *testing.T) {
	shared := func(node dmutex.NodeID, fence uint64) Holder { return Holder{node, hold("x", fence, true)} }
	alone := func(node dmutex.NodeID, fence uint64) Holder { return Holder{node, hold("x", fence, false)} }
	for name, tt := range map[string]struct{ reported, want []Holder }{
		"nobody twice":           {[]Holder{shared(1, 6), shared(2, 5), alone(3, 4), shared(4, 3)}, []Holder{shared(1, 6), shared(2, 5)}},
		"the same":               {[]Holder{shared(1, 6), shared(1, 6), shared(2, 6)}, []Holder{shared(1, 6), shared(2, 6)}},
		"an older one":           {[]Holder{shared(1, 6), shared(2, 5), shared(1, 4)}, []Holder{shared(1, 6), shared(2, 5)}},
		"an older one alone":     {[]Holder{shared(1, 6), alone(1, 5), shared(2, 4)}, []Holder{shared(1, 6), shared(2, 4)}},
		"an equal one alone":     {[]Holder{shared(1, 6), alone(1, 6), shared(2, 6)}, []Holder{shared(1, 6), shared(2, 6)}},
		"a later one alone":      {[]Holder{shared(1, 6), alone(1, 7), shared(2, 6)}, []Holder{alone(1, 7)}},
		"alone, twice":           {[]Holder{alone(1, 6), alone(1, 5), shared(2, 4)}, []Holder{alone(1, 6)}},
		"after one that is over": {[]Holder{shared(1, 6), alone(2, 5), alone(2, 4), shared(1, 3)}, []Holder{shared(1, 6)}},
		"two locks":              {[]Holder{{1, hold("w", 6, true)}, {1, hold("w", 6, false)}, shared(1, 6)}, []Holder{{1, hold("w", 6, true)}, shared(1, 6)}},
	} {
		for k := range len(tt.reported) {
			in := slices.Concat(tt.reported[k:], tt.reported[:k])
			require.Equal(t, tt.want, goingOn(each(in)), "%s, from %d", name, k)
			slices.Reverse(in)
			require.Equal(t, tt.want, goingOn(each(in)), "%s, from %d, reversed", name, k)
		}
	}
}

// each returns the holdings of members that have reported one hold each.
func each(holders []Holder) (holdings []membership.Holding) {
	for _, h := range holders {
		holdings = append(holdings, membership.Holding{Node: h.Node, Holds: []membership.Hold{h.Hold}})
	}
	return holdings
}

// goingOn returns what goes on of the holdings, in the order of the locks' names.
func goingOn(holdings []membership.Holding) (holders []Holder) {
	c := Of(holdings)
	var locks []string
	for lock := range c.All() {
		locks = append(locks, lock)
	}
	slices.Sort(locks)
	for _, lock := range locks {
		if p := c.at[lock]; c.goes[p.of][p.at] {
			holders = append(holders, c.holder(p))
		}
		holders = append(holders, c.several[lock]...)
	}
	return holders
}

func hold(lock string, fence uint64, shared bool) membership.Hold {
	return membership.Hold{Lock: lock, Fence: fence, Shared: shared}
}
