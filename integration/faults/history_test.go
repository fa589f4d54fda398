//go:build unix

package faults

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"
)

// A step is what one operation did to a lock.
type step struct {
	fence   uint64
	shared  bool
	release bool
}

// A fencedLock is a lock as its users see it: one holder, or several that share it, and fences that
// rise, but for those of sharers among each other.
type fencedLock struct {
	fence   [2]uint64 // the highest that were granted, to hold it alone and to share it
	held    bool      // alone
	sharers int
}

// lockModel is the model that porcupine compares the history of one lock with.
var lockModel = porcupine.Model{
	Init: func() any { return fencedLock{} },
	Step: func(state, input, _ any) (bool, any) {
		lock, s := state.(fencedLock), input.(step)
		switch was := lock; {
		case s.release && s.shared:
			lock.sharers--
			return was.sharers > 0, lock
		case s.release:
			lock.held = false
			return was.held && s.fence == was.fence[0], lock
		case s.shared:
			lock.sharers++
			lock.fence[1] = max(lock.fence[1], s.fence)
			return !was.held && s.fence > was.fence[0], lock
		default:
			lock.held, lock.fence[0] = true, s.fence
			return !was.held && was.sharers == 0 && s.fence > max(was.fence[0], was.fence[1]), lock
		}
	},
}

// history turns the stays in one lock into operations. The first instant at which the holder is
// known to have the lock stands for the grant, which came at some instant before. The lock is
// free at an unknown instant after the last one at which the holder is known to have it.
func history(stays []stay) (ops []porcupine.Operation) {
	for _, s := range stays {
		ops = append(ops,
			porcupine.Operation{Input: step{fence: s.Fence, shared: s.Shared}, Call: s.From, Return: s.From},
			porcupine.Operation{Input: step{fence: s.Fence, shared: s.Shared, release: true}, Call: s.Until, Return: math.MaxInt64})
	}
	return ops
}

// judgeHistory says what is wrong with the stays in one lock, judged as a whole by porcupine. Stays whose handles were
// never seen to be good are left out: they may have had the lock at any time or not at all, and the checker would try all
// subsets of them. But their fences are theirs alone, too.
func judgeHistory(lock string, stays []stay) error {
	stays = slices.SortedFunc(slices.Values(stays), func(a, b stay) int { return cmp.Compare(a.Fence, b.Fence) })
	for i := 1; i < len(stays); i++ {
		if was, s := stays[i-1], stays[i]; was.Fence == s.Fence && !(was.Shared && s.Shared) {
			return fmt.Errorf("%s: one fence was granted twice: %+v, %+v", lock, was, s)
		}
	}
	stays = slices.DeleteFunc(stays, func(s stay) bool { return !s.seen() })
	// The checker's memory grows with the square of the length, so it checks parts that share a
	// stay that is not shared. That is enough: if each such stay is after all before it, and before
	// the next one, it is before all later ones.
	for len(stays) > 0 {
		part := stays[:min(1000, len(stays))]
		for last := len(part) - 1; last > 0 && len(part) < len(stays); last-- {
			if !part[last].Shared {
				part = part[:last+1]
				break
			}
		}
		wrong := func(last int) bool { return !porcupine.CheckOperations(lockModel, history(part[:last+1])) }
		if last := len(part) - 1; wrong(last) {
			first := sort.Search(last, wrong)
			return fmt.Errorf("%s: the history is not that of a lock: %+v cannot follow %+v", lock, part[first], part[max(0, first-3):first])
		}
		if len(part) == len(stays) {
			break
		}
		stays = stays[len(part)-1:]
	}
	return nil
}

// The checker accepts what a lock may do, and refuses forged histories.
func TestHistory(t *testing.T) {
	alone := func(fence uint64, from, until int64) stay {
		return stay{Fence: fence, From: from, Until: until}
	}
	share := func(fence uint64, from, until int64) stay {
		return stay{Fence: fence, From: from, Until: until, Shared: true}
	}
	const isNone = "not that of a lock"
	long := make([]stay, 2500)
	for i := range long {
		long[i] = alone(uint64(i+1), int64(10*i), int64(10*i+9))
	}
	var lost []stay // every second stay was never seen
	for i, s := range long {
		lost = append(lost, s, alone(uint64(5000+i), 30_000, 29_999))
	}
	with := func(i int, s stay) []stay {
		forged := slices.Clone(long)
		forged[i] = s
		return forged
	}
	for _, tc := range []struct {
		name  string
		says  string
		stays []stay
	}{
		{"nobody", "", nil},
		{"in turn", "", []stay{alone(1, 10, 20), alone(2, 21, 30), alone(7, 31, 31)}},
		{"out of order", "", []stay{alone(7, 31, 31), alone(1, 10, 20), alone(2, 21, 30)}},
		{"lost before it was seen", "", []stay{alone(1, 10, 20), alone(2, 60, 59), alone(3, 21, 70)}},
		{"two holders", isNone, []stay{alone(1, 10, 20), alone(2, 15, 30)}},
		{"one within another", isNone, []stay{alone(1, 10, 40), alone(2, 15, 30)}},
		{"two holders, the first not next to the second", isNone, []stay{alone(1, 10, 40), alone(2, 60, 59), alone(3, 15, 30)}},
		{"inverted fences", isNone, []stay{alone(2, 10, 20), alone(1, 21, 30)}},
		{"sharers", "", []stay{alone(1, 10, 20), share(2, 21, 40), share(2, 22, 30), share(3, 25, 60), alone(4, 61, 70), share(5, 71, 80)}},
		{"sharers out of order", "", []stay{share(3, 10, 20), share(2, 30, 40), alone(4, 41, 42)}},
		{"a holder among sharers", isNone, []stay{share(2, 10, 20), share(3, 11, 30), alone(4, 25, 40)}},
		{"a sharer beside a holder", isNone, []stay{alone(2, 10, 20), share(3, 15, 30)}},
		{"a sharer with an old fence", isNone, []stay{alone(2, 10, 20), share(1, 21, 30)}},
		{"a fence twice", "granted twice", []stay{alone(1, 10, 20), alone(1, 21, 30)}},
		{"a fence twice, once for a stay that was not seen", "granted twice", []stay{alone(1, 10, 20), alone(1, 60, 59)}},
		{"long", "", long},
		{"long, many lost before they were seen", "", lost},
		{"long, two holders in the middle", isNone, with(1200, alone(1201, 12_000, 12_011))},
		{"long, two holders where its parts meet", isNone, with(998, alone(999, 9_980, 9_991))},
		{"long, lost before it was seen where its parts meet", "", with(999, alone(1000, 30_000, 29_999))},
		{"long, two holders around a stay that was not seen where its parts meet", isNone, slices.Concat(
			long[:998], []stay{alone(999, 9_980, 10_002), alone(1000, 30_000, 29_999)}, long[1000:])},
		{"long, the first stay at the end", isNone, with(0, alone(1, 25_000, 25_001))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := judgeHistory("x", tc.stays); tc.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.says)
			}
		})
	}
}
