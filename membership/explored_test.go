package membership

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/machinetest"
)

// LESSONS L64, L67, L70.
//
// Every run of these groups does nothing wrong: one life at most holds the lock,
// fences rise (also over a restart of all, if clocks are right), no epoch has two
// views, all members of a view have the same report of the holder, a life that
// nobody has vouched for as dead is never stopped, and of two members one that was
// evicted is never back in a view with what it held. (Of three it may be: if the one
// that knows of the view without it ends, or has promised the next view before.) When
// nothing more goes wrong every run ends, in a view of all that are there, also without
// those that have left.
// The numbers are what is there: a change of one is a finding. A run that promises
// more rounds than are stated is left there. DMUTEX_LONG=1 adds the large groups;
// those with a round million are cut there. The lean one takes 15 minutes and 11 GB.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  setup
		states int
		cut    bool
		long   bool
		lean   bool
	}{
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, exits: 1}}, 203_058, false, false, false},
		{setup{n: 2, rounds: 3, faults: faults{crashes: 1, exits: 1}}, 105_653, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{exits: 2}}, 107_925, false, false, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, evicts: 1}}, 18_000, false, false, false},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, exits: 1, evicts: 1}}, 1_116_821, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, lies: 1}}, 193_385, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{exits: 1, alarms: 1}}, 75_755, false, false, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, cuts: 1}}, 11_868, false, false, false},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{exits: 1, cuts: 1}}, 213_504, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, reports: true, faults: faults{crashes: 1, exits: 1}}, 354_957, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, fresh: true, faults: faults{crashes: 1}}, 7_740, false, false, false},
		{setup{n: 2, rounds: 3, fresh: true, faults: faults{crashes: 1, exits: 1}}, 131_417, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 1}}, 1_187_138, false, true, false},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 3, exits: 2}}, 29_782_718, false, true, false},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 3, exits: 2}}, 98_465_916, false, true, true},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{alarms: 1}}, 2_477, false, false, false},
		{setup{n: 3, rounds: 1, clocks: true, fresh: true}, 12_020, false, false, false},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{crashes: 1}}, 341_148, false, false, false},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{exits: 1}}, 4_007, false, false, false},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{crashes: 1}}, 16_710_236, false, true, false},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{exits: 1}}, 3_586_751, false, true, false},
		{setup{n: 3, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 2}}, 1_000_000, true, true, false},
		{setup{n: 3, rounds: 4, clocks: true, away: 2, faults: faults{crashes: 1}}, 1_000_000, true, true, false},
		{setup{n: 3, rounds: 3, fresh: true, faults: faults{crashes: 3}}, 1_000_000, true, true, false},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			most := 200_000_000
			if tt.cut {
				most = tt.states
			}
			f := explore(tt.setup, most, tt.lean)
			require.Empty(t, f.wrong, f.run)
			require.Equal(t, !tt.cut, f.all)
			if !tt.cut {
				require.Equal(t, tt.states, f.states)
			}
		})
	}
}
