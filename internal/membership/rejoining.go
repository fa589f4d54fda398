package membership

import "math"

// A rejoining is rule 5.5: a life that was excluded changes nothing more, and its process goes on as
// another life, after a pause that grows while exclusions follow each other soon.
type rejoining struct {
	spent      bool // this life was excluded, and needs a successor
	joinAt     int64
	joinedAt   int64
	exclusions int // how often it was excluded
	flaps      int // how often in short order
}

func newRejoining() rejoining { return rejoining{joinAt: math.MinInt64} }

// spend ends this life.
func (j *rejoining) spend(now int64) {
	j.spent = true
	j.exclusions++
	if now-j.joinedAt > 60*second {
		j.flaps = 0
	}
	j.joinAt = now + second<<j.flaps - second
	j.flaps = min(j.flaps+1, maxFails)
}

// Exclusions returns how often this life was excluded.
func (j *rejoining) Exclusions() int { return j.exclusions }
