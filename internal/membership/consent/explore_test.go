package consent

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/search"
)

// explore visits every state within the bounds. Beside what Do checks, every state
// without a fair step is good, and fair steps come to an end. So every run without
// further faults ends well, or leaves the bounds. A lean exploration does not check that
// fair steps come to an end.
func explore(s setup, most int, lean bool) (search.Report, error) {
	return search.Search[*world, action]{
		First:  newWorld(s),
		Fair:   (*world).fair,
		Ends:   viewtest.ErrWrong,
		Good:   (*world).good,
		Stuck:  (*world).stuck,
		Lean:   lean,
		Script: func(told string, _ *world, v *search.Violation) string { return viewtest.Script(told, v) },
		Limits: search.Limits{MaxStates: most},
	}.Run()
}

// LESSONS L64, L67, L70.
//
// In every run of these groups, at most one life holds the lock, fences rise (also over a
// restart of all, if clocks are right), no epoch has two views, and all members of a view
// have the same report of the holder. A life is stopped only if somebody has vouched that
// it is dead. In a group of two, an evicted member never comes back into a view with what
// it held. (In a group of three it may: if the member that knows of the view without it
// ends, or has promised the next view before.) Without further faults every run ends in a
// view of all lives that are there. A member that lies once (slanders) ends no life for
// which another member would speak. An evicted life that goes on (lies) ends, and a new
// life takes its place. A changed number of states is a finding. A run is not followed
// beyond the stated number of rounds. DMUTEX_LONG=1 adds all but the short groups. Those
// that are cut stop after that many states. The lean one takes minutes.
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
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, exits: 1}}, 206_083, short},
		{setup{n: 2, rounds: 3, faults: faults{crashes: 1, exits: 1}}, 112_904, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{exits: 2}}, 114_291, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, evicts: 1}}, 24_774, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, exits: 1, evicts: 1}}, 389_250, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 1, lies: 1}}, 359_965, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{exits: 1, alarms: 1}}, 100_599, short},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 1, cuts: 1}}, 14_380, short},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{exits: 1, cuts: 1}}, 166_110, long},
		{setup{n: 2, rounds: 3, clocks: true, reports: true, faults: faults{crashes: 1, exits: 1}}, 126_472, long},
		{setup{n: 2, rounds: 4, clocks: true, fresh: true, faults: faults{crashes: 1}}, 11_681, short},
		{setup{n: 2, rounds: 3, fresh: true, faults: faults{crashes: 1, exits: 1}}, 134_348, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 1}}, 353_226, long},
		{setup{n: 2, rounds: 3, clocks: true, faults: faults{crashes: 3, exits: 2}}, 3_265_249, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{crashes: 3, exits: 2}}, 16_014_103, lean},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{alarms: 1}}, 2_477, short},
		{setup{n: 3, rounds: 1, clocks: true, fresh: true}, 12_832, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{crashes: 1}}, 87_390, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{exits: 1}}, 1_187, short},
		{setup{n: 3, rounds: 1, faults: faults{crashes: 1}}, 321_880, long},
		{setup{n: 3, rounds: 1, clocks: true, behind: true, faults: faults{crashes: 1}}, 343_808, long},
		{setup{n: 2, rounds: 3, clocks: true, behind: true, faults: faults{crashes: 1, exits: 1}}, 183_735, short},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{crashes: 1}}, 5_646_482, long},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{exits: 1}}, 557_842, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{slanders: 1}}, 753, short},
		{setup{n: 3, rounds: 4, clocks: true, faults: faults{slanders: 1}}, 167_913, short},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{slanders: 1, alarms: 1}}, 216_680, short},
		{setup{n: 3, rounds: 3, clocks: true, faults: faults{slanders: 1, alarms: 1}}, 2_512_277, long},
		{setup{n: 2, rounds: 4, clocks: true, faults: faults{lies: 1}}, 27_867, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{lies: 1}}, 16_512, short},
		{setup{n: 3, rounds: 1, clocks: true, faults: faults{slanders: 1, crashes: 1}}, 1_000_000, cut},
		{setup{n: 3, rounds: 2, clocks: true, faults: faults{lies: 1}}, 1_000_000, cut},
		{setup{n: 3, rounds: 3, clocks: true, faults: faults{crashes: 2, exits: 2}}, 1_000_000, cut},
		{setup{n: 3, rounds: 4, clocks: true, away: 2, faults: faults{crashes: 1}}, 1_000_000, cut},
		{setup{n: 3, rounds: 3, fresh: true, faults: faults{crashes: 3}}, 1_000_000, cut},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			switch {
			case tt.form != short:
				machinetest.Long(t)
			case tt.states > 30_000:
				machinetest.Thorough(t)
			}
			most := 200_000_000
			if tt.form == cut {
				most = tt.states
			}
			r, err := explore(tt.setup, most, tt.form == lean)
			require.NoError(t, err)
			require.Equal(t, tt.form != cut, r.Complete)
			if r.Complete {
				require.Equal(t, tt.states, r.States)
			}
		})
	}
}
