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
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 141_140, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1}}, 18_934, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 2, epochs: 1, faults: leaseFaults{slow: 2}}, 9_724, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, faults: leaseFaults{slow: 1, exits: 1}}, 86_236, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, wipes: 1}}, 181_616, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{exits: 1, alarms: 1}}, 48_972, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{crashes: 1}}, 20_566, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{exits: 1}}, 12_064, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2}, 823_138, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{exits: 2, returns: 1}}, 83_637, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 3, faults: leaseFaults{exits: 1, returns: 1}}, 81_248, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1}}, 12_426, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, fresh: true, proves: true, faults: leaseFaults{exits: 1}}, 7_274, false, false},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 1, proves: true, faults: leaseFaults{slow: 1}}, 9_348, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 2, faults: leaseFaults{crashes: 1}}, 10_601, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{wipes: 1}}, 74_649, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true}, 9_748, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, proves: true, faults: leaseFaults{exits: 1, returns: 1}}, 66_152, false, false},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1, wipes: 1}}, 398_162, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, proves: true, faults: leaseFaults{crashes: 1, slow: 1}}, 277_150, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, proves: true, faults: leaseFaults{crashes: 1}}, 30_436, false, false},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, proves: true, unproved: 3}, 3_193_583, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{slow: 1, exits: 1, returns: 1}}, 658_366, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1, exits: 1, returns: 1}}, 405_506, false, true},
		{leaseSetup{n: 2, lease: 2, wait: 2, epochs: 2, faults: leaseFaults{crashes: 1, slow: 1}}, 506_620, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 3, faults: leaseFaults{crashes: 1, slow: 1}}, 933_430, false, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1, slow: 3}}, 3_975_328, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{exits: 1}}, 952_066, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, faults: leaseFaults{crashes: 1}}, 3_307_567, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 3, fresh: true}, 4_000_000, true, true},
		{leaseSetup{n: 2, lease: 1, wait: 1, epochs: 4, faults: leaseFaults{crashes: 1}}, 119_492, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 2, fresh: true}, 2_436_185, false, true},
		{leaseSetup{n: 3, lease: 2, wait: 2, epochs: 1, faults: leaseFaults{crashes: 1}}, 82_764, false, true},
		{leaseSetup{n: 3, lease: 1, wait: 1, epochs: 1, faults: leaseFaults{slow: 1}}, 344_048, false, true},
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
