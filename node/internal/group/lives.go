package group

import (
	"math/rand/v2"
	"time"
)

// drawLife names a life of this process: by its wall clock in steps of 1<<bits ns, so that
// it is probably higher than former ones, and random bits below. It is higher than above.
func drawLife(above uint64, bits int) uint64 {
	random := 1 + rand.Uint64N(1<<bits-1)
	return max(uint64(max(sinceEpoch(), 0))>>bits<<bits|random, above+random)
}

// maxLife returns the highest life that is believed: some clock may be wrong by a day, and
// one such life cannot lock a number out for longer.
func maxLife() uint64 { return uint64(max(sinceEpoch(), 0) + int64(24*time.Hour)) }

// sinceEpoch returns the nanoseconds since 2020-01-01 UTC by the wall clock.
func sinceEpoch() int64 { return int64(time.Since(epochZero)) }

// clockNow returns the clock of the machines of package membership.
func clockNow() uint64 { return uint64(max(sinceEpoch(), 0)) / uint64(time.Millisecond) }

var epochZero = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
