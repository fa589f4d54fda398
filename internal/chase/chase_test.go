package chase_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/chase"
	"github.com/dmutex/dmutex/internal/deadlocktest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

type at = []dmutex.NodeID

// Transactions wait, withdraw and release while chases travel. The youngest member of
// every cycle that stays finds it, and no other member does. A wait is ended only for a
// cycle that existed. DMUTEX_LONG=1 adds the large groups.
func TestExploreChases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		deadlocktest.Chases
		states, cycles, victims int
		long                    bool
	}{
		{deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{2}, Chases: 2, Withdrawals: 1}, 5_019, 252, 276, false},
		{deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{2}, Chases: 2, Withdrawals: 1, Lent: true}, 6_123, 252, 276, false},
		{deadlocktest.Chases{At: at{1, 1}, Locks: 2, Acquires: []int{3}, Chases: 2, Withdrawals: 1, Early: 1}, 9_499, 180, 126, false},
		{deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{3}, Chases: 1, Withdrawals: 1, Early: 1}, 73_586, 1_752, 996, true},
		{deadlocktest.Chases{At: at{1, 2, 2}, Locks: 3, Acquires: []int{2}, Chases: 1}, 60_726, 4_950, 966, false},
		{deadlocktest.Chases{At: at{1, 2, 3}, Locks: 3, Acquires: []int{2}, Chases: 1}, 120_534, 10_854, 1_464, true},
		{deadlocktest.Chases{At: at{1, 2, 3}, Locks: 3, Acquires: []int{2}, Chases: 1, Lent: true}, 125_942, 9_663, 1_365, true},
		{deadlocktest.Chases{At: at{1, 2, 3}, Locks: 2, Acquires: []int{2}, Chases: 1, Withdrawals: 1}, 54_766, 3_770, 1_032, false},
		{deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{3}, Chases: 2, Withdrawals: 1, Early: 1}, 2_573_387, 67_212, 73_560, true},
		{deadlocktest.Chases{At: at{1, 2, 3}, Locks: 3, Acquires: []int{2}, Chases: 1, Withdrawals: 1}, 484_764, 21_318, 9_042, true},
	} {
		t.Run(fmt.Sprintf("%v %d locks %v %d chases %d withdrawals %d early lent %v", tt.At, tt.Locks, tt.Acquires, tt.Chases.Chases, tt.Withdrawals, tt.Early, tt.Lent), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 20_000:
				machinetest.Thorough(t)
			}
			r, victims, err := tt.Explore(search.Limits{})
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, [3]int{tt.states, tt.cycles, tt.victims}, [3]int{r.States, r.Some, victims}, "states, cycles, victims")
		})
	}
}

// A liar is a node that skips some of the checks of the second lap.
type liar struct {
	chase.Locks
	chase   *chase.Chase
	anyWait bool // any wait for the same lock will do
	anyHold bool // any lock that it holds will do
}

func (l liar) Holder(lock string) (chase.Wait, uint64, bool) {
	w, began, held := l.Locks.Holder(lock)
	c := l.chase
	if c.Checked == 0 {
		return w, began, held
	}
	want := c.Path[c.Checked%len(c.Path)]
	if l.anyHold {
		for _, other := range []string{"a", "b", "c"} {
			if v, _, held := l.Locks.Holder(other); held && v == want {
				return v, began, held
			}
		}
	}
	if l.anyWait && held && w.Txn == want.Txn && w.Lock == want.Lock {
		w.Number = want.Number
	}
	return w, began, held
}

// Every rule is needed: without it a wait is ended for a cycle that never existed, or two
// waits for one cycle. The shortest such run is in testdata.
func TestChaseMutants(t *testing.T) {
	type rule = func(*chase.Chase, chase.Locks) (dmutex.NodeID, bool)
	for _, tt := range []struct {
		name   string
		chases deadlocktest.Chases
		follow rule
		kind   error
	}{
		{
			"one-lap",
			deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{2}, Chases: 1, Withdrawals: 1},
			func(c *chase.Chase, here chase.Locks) (dmutex.NodeID, bool) {
				next, found := c.Follow(here)
				if c.Checked > 0 {
					return dmutex.None, true
				}
				return next, found
			},
			deadlocktest.ErrPhantom,
		},
		{
			"no-age",
			deadlocktest.Chases{At: at{1, 2}, Locks: 2, Acquires: []int{2}, Chases: 1},
			func(c *chase.Chase, here chase.Locks) (dmutex.NodeID, bool) {
				c.Began = math.MaxUint64
				return c.Follow(here)
			},
			deadlocktest.ErrTwice,
		},
		{
			"any-wait",
			deadlocktest.Chases{At: at{1, 2, 2}, Locks: 2, Acquires: []int{3, 2, 1}, Chases: 1, Withdrawals: 1},
			func(c *chase.Chase, here chase.Locks) (dmutex.NodeID, bool) {
				return c.Follow(liar{Locks: here, chase: c, anyWait: true})
			},
			deadlocktest.ErrPhantom,
		},
		{
			"any-hold",
			deadlocktest.Chases{At: at{1, 2}, Locks: 3, Acquires: []int{3, 2}, Chases: 1, Early: 1},
			func(c *chase.Chase, here chase.Locks) (dmutex.NodeID, bool) {
				return c.Follow(liar{Locks: here, chase: c, anyHold: true})
			},
			deadlocktest.ErrPhantom,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, err := tt.chases.Explore(search.Limits{})
			require.NoError(t, err, "the group is too large for a test")
			tt.chases.Follow = tt.follow
			_, _, err = tt.chases.Explore(search.Limits{})
			goldentest.Violation(t, "testdata/mutant-"+tt.name+".txt", err, tt.kind)
		})
	}
}

// A fixed is what one node knows of locks that never change.
type fixed struct {
	self  dmutex.NodeID
	locks map[string]chase.Wait
}

func (f fixed) Self() dmutex.NodeID { return f.self }
func (f fixed) Holder(lock string) (chase.Wait, uint64, bool) {
	w, held := f.locks[lock]
	return w, w.Txn, held && w.Node == f.self
}
func (f fixed) WaitsFor(b []dmutex.NodeID, _ string) []dmutex.NodeID {
	return slices.DeleteFunc(append(b, 1, 2, 3), func(id dmutex.NodeID) bool { return id == f.self })
}
func (f fixed) Lends(lock string) dmutex.NodeID { return f.locks[lock].Node }

// round returns a cycle of n transactions at nodes 1, 2 and 3. The last is
// the youngest.
func round(n int) map[string]chase.Wait {
	locks := make(map[string]chase.Wait)
	for i := range n {
		locks[fmt.Sprint(i)] = chase.Wait{Node: dmutex.NodeID(i%3 + 1), Txn: uint64(i + 1), Number: 7, Lock: fmt.Sprint((i + 1) % n)}
	}
	return locks
}

func follow(locks map[string]chase.Wait, of chase.Wait) (c *chase.Chase, hops int, found bool) {
	c = chase.New(of.Txn, of, fixed{of.Node, locks})
	for node := of.Node; ; hops++ {
		next, found := c.Follow(fixed{node, locks})
		if found || next == dmutex.None {
			return c, hops, found
		}
		node = next
	}
}

// A chase finds a cycle of up to MaxPath waits, in at most 5 hops a wait. It does not
// find a longer one.
func TestChaseLengths(t *testing.T) {
	for _, n := range []int{1, 2, 3, 10, chase.MaxPath} {
		locks := round(n)
		of := locks[fmt.Sprint(n-1)]
		c, hops, found := follow(locks, of)
		require.True(t, found)
		require.Len(t, c.Path, n)
		require.Equal(t, of, c.Path[0])
		require.LessOrEqual(t, hops, n*(4+1))
	}
	locks := round(chase.MaxPath + 1)
	_, _, found := follow(locks, locks[fmt.Sprint(chase.MaxPath)])
	require.False(t, found)
}

// A chase that runs into a cycle of other transactions ends: they find it themselves.
func TestChaseIntoACycle(t *testing.T) {
	locks := round(3)
	_, hops, found := follow(locks, chase.Wait{Node: 2, Txn: 99, Number: 1, Lock: "0"})
	require.False(t, found)
	require.Less(t, hops, 20)
}

// A chase that cannot reach the next node asks the others, and ends.
func TestChaseAround(t *testing.T) {
	locks := map[string]chase.Wait{"x": {Node: 3, Txn: 1, Number: 1, Lock: "y"}}
	c := chase.New(5, chase.Wait{Node: 1, Txn: 5, Number: 1, Lock: "x"}, fixed{1, locks})
	var asked at
	for {
		next, found := c.Follow(fixed{1, locks})
		require.False(t, found)
		if next == dmutex.None {
			break
		}
		asked = append(asked, next)
	}
	require.Equal(t, at{3, 2, 3, 3, 3}, asked, "the borrower before each")
}

// A chase with nonsense in it does no harm: it finds a cycle only at the node of its first wait.
func FuzzChase(f *testing.F) {
	f.Add(2, 1, uint64(3), []byte("0123"))
	f.Add(0, 0, uint64(0), []byte{})
	f.Fuzz(func(t *testing.T, length, checked int, began uint64, path []byte) {
		locks := round(4)
		c := &chase.Chase{Began: began, Checked: checked, Ask: at{1, 9, 2}}
		for _, b := range path {
			w := locks[fmt.Sprint(b%5)]
			w.Number += uint64(b >> 7)
			c.Path = append(c.Path, w)
		}
		c.Path = slices.Grow(c.Path, 1)[:max(0, min(length, len(c.Path)))]
		for node := range uint64(3) {
			for range 1000 {
				next, found := c.Follow(fixed{dmutex.NodeID(node + 1), locks})
				if found {
					require.Equal(t, dmutex.NodeID(node+1), c.Path[0].Node)
				}
				if found || next == dmutex.None || c.Checked > 0 {
					break
				}
			}
		}
	})
}
