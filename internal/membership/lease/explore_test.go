package lease

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/kit/viewtest"
	"github.com/dmutex/dmutex/internal/search"
)

// exploreLeases visits every state within the bounds. Beside what Do checks, fair steps
// can lead from each of them to one in which all is well, or out of the bounds.
func explore(s setup, most int) (search.Report, error) {
	return search.Search[*world, action]{
		First:  newWorld(s),
		Fair:   (*world).fair,
		Good:   (*world).good,
		Stuck:  (*world).stuck,
		Script: func(told string, _ *world, v *search.Violation) string { return viewtest.Script(told, v) },
		Limits: search.Limits{MaxStates: most},
	}.Run()
}

// LESSONS L64, L67, L70.
//
// In every run of these groups, at most one life holds the lock, fences rise, no epoch
// has two views, and all members of a view have the same report of the holder. From every
// state, without further faults, all lives that are there can become the members and act.
// Any member may exclude any other at any time within the bounds. A changed number of
// states is a finding. CI=1 and DMUTEX_LONG=1 add the large groups. Those that are cut stop after
// that many states.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  setup
		states int
		cut    bool
		long   bool
	}{
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{crashes: 1, slow: 1}}, 345_642, false, false},
		{setup{n: 2, lease: 2, wait: 2, epochs: 2, faults: faults{crashes: 1}}, 47_080, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, homed: true, faults: faults{crashes: 2}}, 24_710, false, false},
		{setup{n: 2, lease: 1, wait: 2, epochs: 1, faults: faults{slow: 2}}, 9_724, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, faults: faults{slow: 1, exits: 1}}, 150_736, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, faults: faults{crashes: 1, wipes: 1}}, 325_526, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, tells: true, faults: faults{wipes: 1}}, 61_632, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, tells: true, faults: faults{crashes: 1, wipes: 1}}, 344_706, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 1, tells: true, faults: faults{slow: 1, wipes: 1}}, 40_360, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 1, proves: true, tells: true, faults: faults{wipes: 1}}, 6_672, false, false},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 1, tells: true, faults: faults{wipes: 1}}, 462_222, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 3, faults: faults{exits: 1, alarms: 1}}, 82_522, false, false},
		{setup{n: 3, lease: 1, wait: 1, epochs: 1, faults: faults{crashes: 1}}, 113_242, false, false},
		{setup{n: 3, lease: 1, wait: 1, epochs: 2, homed: true, swift: true, faults: faults{crashes: 1}}, 5_074_705, false, true},
		{setup{n: 3, lease: 1, wait: 1, epochs: 1, faults: faults{exits: 1}}, 15_832, false, false},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2}, 672_757, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 4, faults: faults{exits: 2, returns: 1}}, 157_013, false, false},
		{setup{n: 2, lease: 2, wait: 2, epochs: 3, faults: faults{exits: 1, returns: 1}}, 140_460, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: faults{crashes: 1}}, 29_828, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, proves: true, faults: faults{exits: 1}}, 14_112, false, false},
		{setup{n: 2, lease: 2, wait: 2, epochs: 1, proves: true, faults: faults{slow: 1}}, 9_348, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 2, faults: faults{crashes: 1}}, 25_223, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: faults{wipes: 1}}, 126_505, false, false},
		{setup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true}, 10_924, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 3, proves: true, faults: faults{exits: 1, returns: 1}}, 113_458, false, false},
		{setup{n: 2, lease: 1, wait: 1, epochs: 4, joining: true, swift: true, proves: true, faults: faults{slow: 1}}, 638_511, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 4, joining: true, swift: true, proves: true, faults: faults{slow: 2}}, 4_349_875, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: faults{crashes: 1, wipes: 1}}, 735_320, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: faults{crashes: 1, slow: 1}}, 681_454, false, true},
		{setup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true, faults: faults{crashes: 1}}, 132_136, false, false},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2, proves: true, unproved: 3}, 2_851_599, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 3, faults: faults{slow: 1, exits: 1, returns: 1}}, 1_158_276, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 4, faults: faults{crashes: 1, exits: 1, returns: 1}}, 1_069_386, false, true},
		{setup{n: 2, lease: 2, wait: 2, epochs: 2, faults: faults{crashes: 1, slow: 1}}, 1_301_042, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 3, faults: faults{crashes: 1, slow: 1}}, 2_113_486, false, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 2, swift: true, faults: faults{crashes: 1, slow: 3}}, 4_024_052, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2, faults: faults{exits: 1}}, 767_707, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2, faults: faults{crashes: 1}}, 2_981_155, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 3, fresh: true}, 4_000_000, true, true},
		{setup{n: 2, lease: 1, wait: 1, epochs: 4, faults: faults{crashes: 1}}, 337_228, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2, fresh: true}, 2_506_226, false, true},
		{setup{n: 3, lease: 2, wait: 2, swift: true, epochs: 1, faults: faults{crashes: 1}}, 97_392, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 1, faults: faults{slow: 1}}, 243_614, false, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 2, faults: faults{slow: 1}}, 4_000_000, true, true},
		{setup{n: 3, lease: 2, wait: 2, swift: true, epochs: 2, faults: faults{crashes: 1}}, 4_000_000, true, true},
		{setup{n: 3, lease: 1, wait: 1, swift: true, epochs: 4, fresh: true, faults: faults{crashes: 1, exits: 1}}, 4_000_000, true, true},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 20_000:
				machinetest.Thorough(t)
			}
			most := 8_000_000
			if tt.cut {
				most = tt.states
			}
			r, err := explore(tt.setup, most)
			require.NoError(t, err)
			require.Equal(t, !tt.cut, r.Complete)
			if !tt.cut {
				require.Equal(t, tt.states, r.States)
			}
		})
	}
}
