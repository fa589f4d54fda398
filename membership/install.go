package membership

import (
	"cmp"
	"slices"

	"github.com/dmutex/dmutex"
)

// This file has what both modes share of the second half of a view change.

// phaseOf returns the phase of a life in view v. Ended is Outside while its part goes on.
func phaseOf(ended Phase, v View, acting bool) Phase {
	switch {
	case ended != Outside:
		return ended
	case v.Epoch == 0:
		return Outside
	case acting:
		return Acting
	default:
		return Frozen
	}
}

// carryOver returns the holders that a view begins with, in the order of the locks'
// names, from what its members have reported. If two report one lock, the higher
// fence counts.
func carryOver(reported []Holder) []Holder {
	slices.SortFunc(reported, func(a, b Holder) int {
		return cmp.Or(cmp.Compare(a.Lock, b.Lock), cmp.Compare(b.Fence, a.Fence)) // the first of a lock stays
	})
	return slices.CompactFunc(reported, func(a, b Holder) bool { return a.Lock == b.Lock })
}

// appendHolders appends what one member has reported.
func appendHolders(all []Holder, node dmutex.NodeID, holds []Hold) []Holder {
	for _, h := range holds {
		all = append(all, Holder{node, h})
	}
	return all
}

// clockAfter returns the wall clock, as a fence, when it was clock some nanoseconds
// ago. It returns 0 if there was no clock.
func clockAfter(clock uint64, passed int64) uint64 {
	if clock == 0 {
		return 0
	}
	return clock + uint64(passed/second)<<32
}

// aheadOf returns by how much an epoch is ahead of the wall clock, in nanoseconds. It
// returns 0 if it is not, or if there is no clock or it is useless.
func aheadOf(clock uint64, epoch uint32) int64 {
	ahead := int64(epoch) - int64(clock>>32)
	if clock == 0 || ahead < 0 || ahead*second > maxWait {
		return 0
	}
	return ahead * second
}
