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
func history(stays []claim) (ops []porcupine.Operation) {
	for _, s := range stays {
		ops = append(ops,
			porcupine.Operation{Input: step{fence: s.Fence, shared: s.Shared}, Call: s.From, Return: s.From},
			porcupine.Operation{Input: step{fence: s.Fence, shared: s.Shared, release: true}, Call: s.Until, Return: math.MaxInt64})
	}
	return ops
}

// judgeHistory says what is wrong with the stays in one lock. The referee and the ledger
// judge each claim as they hear it; this is a second opinion on the whole history, by
// porcupine. Handles that were never seen to be good are left out: they may have
// held the lock at any time or not at all, and the checker would try all subsets of them.
func judgeHistory(lock string, stays []claim) error {
	stays = slices.SortedFunc(slices.Values(stays), func(a, b claim) int { return cmp.Compare(a.Fence, b.Fence) })
	stays = slices.DeleteFunc(stays, func(s claim) bool { return !s.seen() })
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

// seen reports whether the holder is known to have had the lock at some instant.
func (c claim) seen() bool { return c.From <= c.Until }

// The checker accepts what a lock may do, and refuses forged histories.
func TestHistory(t *testing.T) {
	stay := func(fence uint64, from, until int64) claim {
		return claim{Fence: fence, From: from, Until: until}
	}
	share := func(fence uint64, from, until int64) claim {
		return claim{Fence: fence, From: from, Until: until, Shared: true}
	}
	long := make([]claim, 2500)
	for i := range long {
		long[i] = stay(uint64(i+1), int64(10*i), int64(10*i+9))
	}
	var lost []claim // every second stay was never seen
	for i, s := range long {
		lost = append(lost, s, stay(uint64(5000+i), 30_000, 29_999))
	}
	with := func(i int, s claim) []claim {
		forged := slices.Clone(long)
		forged[i] = s
		return forged
	}
	for _, tc := range []struct {
		name  string
		right bool
		stays []claim
	}{
		{"nobody", true, nil},
		{"in turn", true, []claim{stay(1, 10, 20), stay(2, 21, 30), stay(7, 31, 31)}},
		{"out of order", true, []claim{stay(7, 31, 31), stay(1, 10, 20), stay(2, 21, 30)}},
		{"lost before it was seen", true, []claim{stay(1, 10, 20), stay(2, 60, 59), stay(3, 21, 70)}},
		{"two holders", false, []claim{stay(1, 10, 20), stay(2, 15, 30)}},
		{"one within another", false, []claim{stay(1, 10, 40), stay(2, 15, 30)}},
		{"two holders, the first not next to the second", false, []claim{stay(1, 10, 40), stay(2, 60, 59), stay(3, 15, 30)}},
		{"inverted fences", false, []claim{stay(2, 10, 20), stay(1, 21, 30)}},
		{"sharers", true, []claim{stay(1, 10, 20), share(2, 21, 40), share(2, 22, 30), share(3, 25, 60), stay(4, 61, 70), share(5, 71, 80)}},
		{"sharers out of order", true, []claim{share(3, 10, 20), share(2, 30, 40), stay(4, 41, 42)}},
		{"a holder among sharers", false, []claim{share(2, 10, 20), share(3, 11, 30), stay(4, 25, 40)}},
		{"a sharer beside a holder", false, []claim{stay(2, 10, 20), share(3, 15, 30)}},
		{"a sharer with an old fence", false, []claim{stay(2, 10, 20), share(1, 21, 30)}},
		{"a fence twice", false, []claim{stay(1, 10, 20), stay(1, 21, 30)}},
		{"long", true, long},
		{"long, many lost before they were seen", true, lost},
		{"long, two holders in the middle", false, with(1200, stay(1201, 12_000, 12_011))},
		{"long, two holders where its parts meet", false, with(998, stay(999, 9_980, 9_991))},
		{"long, lost before it was seen where its parts meet", true, with(999, stay(1000, 30_000, 29_999))},
		{"long, two holders around a stay that was not seen where its parts meet", false, slices.Concat(
			long[:998], []claim{stay(999, 9_980, 10_002), stay(1000, 30_000, 29_999)}, long[1000:])},
		{"long, the first stay at the end", false, with(0, stay(1, 25_000, 25_001))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := judgeHistory("x", tc.stays); tc.right {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, "not that of a lock")
				require.ErrorContains(t, err, "cannot follow [{")
			}
		})
	}
}
