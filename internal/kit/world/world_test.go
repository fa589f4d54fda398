package world

import (
	"flag"
	"fmt"
	"iter"
	"math"
	"os"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/kit/storm"
)

// seeds yields the seeds to run: as many as the test says, 300 with DMUTEX_LONG=1, or as many as DMUTEX_SEEDS says or fit in
// the DMUTEX_TIME, from DMUTEX_FIRST on. With DMUTEX_SEED it is that one.
func seeds(t *testing.T, few int) iter.Seq[uint64] {
	first, _ := strconv.ParseUint(os.Getenv("DMUTEX_FIRST"), 10, 64)
	if os.Getenv("DMUTEX_LONG") != "" {
		few = 300
	}
	if n, err := strconv.Atoi(os.Getenv("DMUTEX_SEEDS")); err == nil {
		few = n
	}
	end := time.Now().Add(100 * time.Hour)
	if d, err := time.ParseDuration(os.Getenv("DMUTEX_TIME")); err == nil {
		end, few = time.Now().Add(d), math.MaxInt
	}
	one := os.Getenv("DMUTEX_SEED") != ""
	return func(yield func(uint64) bool) {
		for i := range few {
			seed := first + uint64(i)
			if one {
				seed = storm.Seeds(t, 0)[0]
			}
			over := t.Failed() && flag.Lookup("test.failfast").Value.String() == "true"
			if over || !yield(seed) || one || time.Now().After(end) {
				return
			}
		}
	}
}

// LESSONS L12, L19, L25, L28, L53, L64, L66, L68, L80: everything at once.
func TestWorld(t *testing.T) {
	few := 12
	if racetest.On {
		few = 4
	}
	done := make(map[string]int)
	grants, n := 0, 0
	for seed := range seeds(t, few) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			synctest.Test(t, func(t *testing.T) {
				w := Run(t, seed)
				for what, n := range w.Done() {
					done[what] += n
				}
				grants += w.Count()
				t.Logf("%d grants, the sum of the notes is %x", w.Count(), w.Sum())
			})
		})
		n++
	}
	t.Logf("%d seeds, %d grants; %v", n, grants, done)
	if n >= 100 && !t.Failed() {
		for _, what := range []string{"moved", "lost", "settings change", "two members go", "a client hears late", "a member is taken for dead", "a stranger connects", "a stranger publishes"} {
			require.Positive(t, done[what], what)
		}
	}
}
