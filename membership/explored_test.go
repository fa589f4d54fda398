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
// more rounds than are stated is left there. DMUTEX_LONG=1 adds all but the short ones;
// those that are cut end after that many states. The lean one takes 15 minutes and 11 GB.
func TestExplore(t *testing.T) {
	type form int
	const (
		short form = iota
		long
		lean // see explore
		cut
	)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  setup
		states int
		form   form
	}{
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, exits: 1}}, 203_058, short},
		{setup{n: 2, rounds: 3, faults: faults{crashes: 1, exits: 1}}, 105_653, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{exits: 2}}, 107_925, short},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, evicts: 1}}, 18_000, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, exits: 1, evicts: 1}}, 1_116_821, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, lies: 1}}, 193_385, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{exits: 1, alarms: 1}}, 75_755, short},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, cuts: 1}}, 11_868, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{exits: 1, cuts: 1}}, 213_504, long},
		{setup{n: 2, rounds: 3, clocks: true, reports: true, faults: faults{crashes: 1, exits: 1}}, 354_957, long},
		{setup{n: 2, rounds: 3, clocks: true, fresh: true, faults: faults{crashes: 1}}, 7_740, short},
		{setup{n: 2, rounds: 3, fresh: true, faults: faults{crashes: 1, exits: 1}}, 131_417, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 1}}, 1_187_138, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 3, exits: 2}}, 29_782_718, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 3, exits: 2}}, 98_465_916, lean},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{alarms: 1}}, 2_477, short},
		{setup{n: 3, rounds: 1, clocks: true, fresh: true}, 12_020, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{crashes: 1}}, 341_148, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{exits: 1}}, 4_007, short},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{crashes: 1}}, 16_710_236, long},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{exits: 1}}, 3_586_751, long},
		{setup{n: 3, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 2}}, 1_000_000, cut},
		{setup{n: 3, rounds: 4, clocks: true, away: 2, faults: faults{crashes: 1}}, 1_000_000, cut},
		{setup{n: 3, rounds: 3, fresh: true, faults: faults{crashes: 3}}, 1_000_000, cut},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			if tt.form != short {
				machinetest.Long(t)
			}
			most := 200_000_000
			if tt.form == cut {
				most = tt.states
			}
			f := explore(tt.setup, most, tt.form == lean)
			require.Empty(t, f.wrong, f.run)
			require.Equal(t, tt.form != cut, f.all)
			if f.all {
				require.Equal(t, tt.states, f.states)
			}
		})
	}
}
