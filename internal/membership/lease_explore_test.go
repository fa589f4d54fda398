package membership

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/internal/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

// exploreLeases visits every state within the bounds. Beside what Do checks, from each of
// them one is reached in which all is well, by what happens by itself, or the bounds are
// left.
func exploreLeases(s leaseSetup, most int) (search.Report, error) {
	return search.Search[*leaseWorld, action]{
		First:     newLeaseWorld(s),
		Fair:      (*leaseWorld).fair,
		Good:      (*leaseWorld).good,
		Stuck:     (*leaseWorld).stuck,
		Script:    func(told string, _ *leaseWorld, v *search.Violation) string { return script(told, v) },
		MaxStates: most,
	}.Run()
}

// LESSONS L64, L67, L70.
//
// Every run of these groups does nothing wrong: one life at most holds the lock, fences
// rise, no epoch has two views, and all members of a view have the same report of the
// holder. From every state one is reached in which all lives that are there are the
// members and act, without further faults. Any member may exclude any other at any time
// within the bounds. The numbers are what is there: a change of one is a finding.
// DMUTEX_LONG=1 adds the large groups; those with a round million are cut there.
func TestLeaseExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, tt := range []struct {
		setup  leaseSetup
		states int
		cut    bool
		long   bool
	}{
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 110_536, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1}}, 12_866, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 2, epochs: 1, faults: leaseFaults{slow: 2}}, 10_516, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, faults: leaseFaults{slow: 1, exits: 1}}, 67_322, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, wipes: 1}}, 128_782, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{exits: 1, alarms: 1}}, 26_232, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{crashes: 1}}, 17_704, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{exits: 1}}, 9_592, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2}, 136_075, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{exits: 2, returns: 1}}, 42_166, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 3, faults: leaseFaults{exits: 1, returns: 1}}, 40_758, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1}}, 8_174, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, proves: true, faults: leaseFaults{exits: 1}}, 5_293, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 1, proves: true, faults: leaseFaults{slow: 1}}, 8_386, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 2, faults: leaseFaults{crashes: 1}}, 7_171, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{wipes: 1}}, 49_037, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true}, 6_100, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, proves: true, faults: leaseFaults{exits: 1, returns: 1}}, 29_894, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1, wipes: 1}}, 271_246, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1, slow: 1}}, 200_310, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true, faults: leaseFaults{crashes: 1}}, 23_596, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 3}, 397_946, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{slow: 1, exits: 1, returns: 1}}, 415_230, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1, exits: 1, returns: 1}}, 199_014, false, true},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 376_728, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{crashes: 1, slow: 1}}, 613_874, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 3}}, 2_920_716, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{exits: 1}}, 213_547, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1}}, 1_023_418, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 3, fresh: true}, 4_000_000, true, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1}}, 56_408, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, fresh: true}, 779_118, false, true},
		{leaseSetup{n: 3, lease: 2, wait: 2, epochs: 1, faults: leaseFaults{crashes: 1}}, 66_930, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{slow: 1}}, 285_986, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{slow: 1}}, 4_000_000, true, true},
		{leaseSetup{n: 3, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1}}, 4_000_000, true, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 4, fresh: true, faults: leaseFaults{crashes: 1, exits: 1}}, 4_000_000, true, true},
	} {
		t.Run(tt.setup.name(), func(t *testing.T) {
			if tt.long {
				machinetest.Long(t)
			}
			most := 8_000_000
			if tt.cut {
				most = tt.states
			}
			r, err := exploreLeases(tt.setup, most)
			require.NoError(t, err)
			require.Equal(t, !tt.cut, r.Complete)
			if !tt.cut {
				require.Equal(t, tt.states, r.States)
			}
		})
	}
}
