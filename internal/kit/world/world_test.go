package world

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/dmutex/dmutex/internal/kit/quicktest"
	"github.com/dmutex/dmutex/internal/kit/racetest"
	"github.com/dmutex/dmutex/internal/kit/storm"
)

// LESSONS L19, L25, L28, L53, L64, L66, L68, L80: everything at once. DMUTEX_LONG=1 runs 300 seeds, or as many as
// DMUTEX_SEEDS says.
func TestWorld(t *testing.T) {
	seeds := 60
	switch {
	case os.Getenv("DMUTEX_LONG") != "":
		seeds = 300
		if n, err := strconv.Atoi(os.Getenv("DMUTEX_SEEDS")); err == nil {
			seeds = n
		}
	case racetest.On:
		seeds = 4
	case quicktest.On():
		seeds = 12
	}
	done := make(map[string]int)
	grants := 0
	for _, seed := range storm.Seeds(t, seeds) {
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
	}
	t.Logf("%d grants; %v", grants, done)
}
