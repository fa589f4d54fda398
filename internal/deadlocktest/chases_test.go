package deadlocktest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/internal/search"
)

// Random schedules of larger groups. If all transactions ask for the locks in one order
// there are no cycles and no victims. If they ask in any order, all of them still end.
// DMUTEX_LONG=1 makes a million schedules of each kind.
func TestSimulateChases(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	schedules := 3_000
	if os.Getenv("DMUTEX_LONG") != "" {
		schedules = 1_000_000
	}
	run := func(seed uint64, ordered bool) int {
		c := Chases{
			At: []dmutex.NodeID{1, 2, 3, 1, 2, 4}[:2+seed%5], Locks: int(2 + seed%4), Acquires: []int{5}, Chases: 2,
			Withdrawals: 3, Early: 3, Ordered: ordered, Lent: seed%2 == 0,
		}
		victims, err := c.simulate(seed, 80)
		require.NoError(t, err)
		return victims
	}
	for seed := range uint64(schedules) {
		require.Zero(t, run(seed, true), "seed %d: a victim though there is no cycle", seed)
	}
	victims := 0
	for seed := range uint64(schedules) {
		victims += run(seed, false)
	}
	require.NotZero(t, victims)
	t.Logf("%d schedules without cycles, no victim; %d with, %d victims", schedules, schedules, victims)
}

// simulate makes a random run of the given number of steps, and then lets every
// transaction end what it has begun: a waiting one chases, any other releases. It returns
// how many waits were ended. No transaction may be left waiting. Like Explore, it returns
// a [*search.Violation] if anything is wrong.
func (t *Chases) simulate(seed uint64, steps int) (victims int, err error) {
	random := rand.New(rand.NewPCG(seed, 0))
	w := t.begin()
	var run []chaseEvent
	do := func(s chaseEvent) error {
		run = append(run, s)
		err := s.Do(w)
		if err == nil {
			err = w.standing()
		}
		if v, ok := errors.AsType[*search.Violation](err); ok {
			told, last := search.Tell(t.begin(), run)
			v.Script = fmt.Sprintf("seed %d\n%s\n%v", seed, told, last)
		}
		return err
	}
	for range steps {
		all := w.Steps(nil)
		if len(all) == 0 {
			break
		}
		if err := do(all[random.IntN(len(all))]); err != nil {
			return len(w.declared), err
		}
	}
	for calm := 0; ; calm++ {
		for i := range w.txns {
			w.txns[i].acquires = 0
			if len(w.wire) == 0 {
				w.txns[i].chases = 1
			}
		}
		w.Withdrawals, w.Early = 0, 0
		all := w.Steps(nil)
		if len(all) == 0 {
			return len(w.declared), nil
		}
		if calm > 10_000 {
			return len(w.declared), search.Wrong(ErrMissed, "seed %d: the run does not end\n%v", seed, w)
		}
		if err := do(all[random.IntN(len(all))]); err != nil {
			return len(w.declared), err
		}
	}
}
