package lease

import (
	"math"
	"slices"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/membership"
)

// A rejoining is rule 5.5: a life is a member at most once. One that was excluded changes nothing more, and
// its process goes on as another life, after a pause that grows while exclusions follow each other soon.
type rejoining struct {
	spent      bool          // this life was excluded, and needs a successor
	asked      dmutex.NodeID // the number that a join of unknown outcome may have given to this life; None if there is none
	joinAt     int64
	joinedAt   int64
	exclusions int // how often it was excluded
	flaps      int // how often in short order
}

func newRejoining() rejoining { return rejoining{joinAt: math.MinInt64} }

// missed reports whether this life may have been a member, by a join whose answer was lost, and was
// excluded before it knew: the number that it asked for was given, and nobody has it. The others may have
// forgotten that life for good by then, so it must not join again. As long as the number was not given, or
// if another life has it, the join was not done.
func (j *rejoining) missed(r *Record) bool {
	if j.asked == dmutex.None || r.Highest < j.asked {
		return false
	}
	if slices.ContainsFunc(r.Members, func(e Entry) bool { return e.Node == j.asked }) {
		j.asked = dmutex.None // and never will be done: a number is given once
		return false
	}
	return true
}

// spend ends this life.
func (j *rejoining) spend(now int64) {
	j.spent, j.asked = true, dmutex.None
	j.exclusions++
	if now-j.joinedAt > 60*second {
		j.flaps = 0
	}
	j.joinAt = now + second<<j.flaps - second
	j.flaps = min(j.flaps+1, membership.MaxFails)
}

// Exclusions returns how often this life was excluded.
func (j *rejoining) Exclusions() int { return j.exclusions }
