package deadlock_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/deadlock"
	"github.com/dmutex/dmutex/internal/deadlocktest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

// Whatever waits begin and end while messages are in flight: a node in each deadlock declares
// it, and no node declares one that does not exist. The numbers are those found: a change
// of one is a finding. DMUTEX_LONG=1 adds the large groups, such as four nodes that wait
// once each, for one other. In the OR model those four call Detect only together with
// Wait, because Detect at any time needs more than 3 GB.
func TestExplore(t *testing.T) {
	for _, tt := range []struct {
		or        bool
		waits     []int
		widest    []int
		atOnce    bool
		states    int
		deadlocks int // states in which one is declared
		long      bool
	}{
		{false, []int{2, 2}, nil, false, 1_182, 81, false},
		{false, []int{1, 1, 1}, nil, false, 16_558, 1_061, false},
		{false, []int{1, 1, 1}, []int{2, 1, 1}, true, 18_857, 3_570, false},
		{false, []int{2, 1, 1}, nil, true, 18_354, 1_313, false},
		{false, []int{1, 1, 1}, []int{2, 2, 2}, true, 352_664, 199_243, true},
		{false, []int{2, 2, 2}, nil, true, 586_290, 37_839, true},
		{false, []int{1, 1, 1, 1}, nil, true, 459_980, 32_827, true},
		{false, []int{1, 1, 1, 1}, nil, false, 2_786_467, 165_429, true},
		{true, []int{2, 2}, nil, false, 4_060, 141, false},
		{true, []int{1, 1, 1}, nil, true, 18_954, 986, false},
		{true, []int{1, 1, 1}, nil, false, 72_077, 3_473, true},
		{true, []int{2, 1, 1}, nil, true, 138_439, 6_599, true},
		{true, []int{1, 1, 1}, []int{2, 1, 1}, true, 195_549, 4_455, true},
		{true, []int{1, 1, 1, 1}, nil, true, 5_041_853, 236_083, true},
	} {
		t.Run(fmt.Sprint("or ", tt.or, " ", tt.waits, tt.widest, " at once ", tt.atOnce), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			tr := deadlocktest.Trial{Model: deadlocktest.And, Waits: tt.waits, Widest: tt.widest, AtOnce: tt.atOnce}
			if tt.or {
				tr.Model = deadlocktest.Or
			}
			r, err := tr.Explore(search.Limits{MaxStates: 6_000_000})
			require.NoError(t, err)
			require.True(t, r.Complete)
			require.Equal(t, tt.states, r.States, "states")
			require.Equal(t, tt.deadlocks, r.Some, "deadlocks")
		})
	}
}

// Every rule and every assumption is needed: without it a deadlock is missed, or one is
// declared that does not exist. The shortest run that shows it is in testdata.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	type trial = deadlocktest.Trial
	and, or := deadlocktest.And, deadlocktest.Or
	for _, tt := range []struct {
		name  string
		trial trial
		kind  error
	}{
		{"and-unordered", trial{Model: and, Waits: []int{1, 1}, Unordered: true}, deadlocktest.ErrMissed},
		{"and-withdrawn", trial{Model: and, Waits: []int{1, 1}, Withdraws: 1}, deadlocktest.ErrPhantom},
		{"and-granted-waits", trial{Model: deadlocktest.Of(false, deadlock.NewAnyProbe), Waits: []int{2, 1, 1}}, deadlocktest.ErrPhantom},
		{"and-no-numbers", trial{Model: deadlocktest.Of(false, deadlock.NewDependent), Waits: []int{2, 2, 2}, AtOnce: true}, deadlocktest.ErrMissed},
		{"or-unordered", trial{Model: or, Waits: []int{2, 2}, Unordered: true}, deadlocktest.ErrPhantom},
		{"or-flags-kept", trial{Model: deadlocktest.Of(true, deadlock.NewDeaf), Waits: []int{2, 1, 1}}, deadlocktest.ErrPhantom},
		{"or-no-numbers", trial{Model: deadlocktest.Of(true, deadlock.NewUnnumbered), Waits: []int{2, 2}, AtOnce: true}, deadlocktest.ErrMissed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := tt.trial.Explore(search.Limits{MaxStates: 1_000_000})
			goldentest.Violation(t, "testdata/mutant-"+tt.name+".txt", err, tt.kind)
		})
	}
}
