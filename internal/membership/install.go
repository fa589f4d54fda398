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
