package lease

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/due"
	"github.com/dmutex/dmutex/internal/membership"
)

// Rules 5.1 and 5.6: in every order of outcomes one operation at a time is started, once. After a swap
// that was not done, or may not have been, nothing but a load that has succeeded ends the staleness.
func TestRegister(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 0))
		r, now, stale, unsure := newRegister(testLease), int64(0), true, false
		for range 100 {
			require.Equal(t, stale, r.stale, "seed %d", seed)
			require.Equal(t, unsure, r.unsure, "seed %d", seed)
			op := []Operation{Load, Swap, Live, Look}[rng.IntN(4)]
			if r.stale || op == Load {
				op, now = Load, max(now, r.nextLoad()+1)
				r.load(now)
			} else {
				r.begin(now, op, nil)
			}
			require.Equal(t, int64(due.Never), r.nextLoad(), "seed %d", seed)
			err := []error{nil, ErrConflict, errUnknown}[rng.IntN(3)]
			stale = stale && op != Load || err != nil
			unsure = unsure && (op != Load || err != nil) || op == Swap && err == errUnknown
			now += rng.Int64N(second)
			finished, _ := r.finish(now, membership.MinPause, rng.Uint64(), err)
			require.Equal(t, op, finished, "seed %d", seed)
			if stale {
				require.LessOrEqual(t, r.nextLoad(), now+testLease/6, "it asks again in time to renew, seed %d", seed)
			}
		}
	}
}

// Lives that have lost a swap together ask again at different times.
func TestRegisterSpreadsLosers(t *testing.T) {
	at := make(map[int64]bool)
	for life := range uint64(64) {
		r := newRegister(testLease)
		r.losses = 3
		r.begin(0, Swap, nil)
		r.finish(0, membership.MinPause, life, ErrConflict)
		at[r.loadAt/millisecond] = true
	}
	require.Greater(t, len(at), 40)
}
