package election_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/election"
	"github.com/dmutex/dmutex/internal/electiontest"
	"github.com/dmutex/dmutex/internal/goldentest"
	"github.com/dmutex/dmutex/internal/kit/machinetest"
	"github.com/dmutex/dmutex/internal/search"
)

type (
	trial = electiontest.Trial
	odds  = electiontest.Odds
)

var algorithms = map[string]election.Algorithm{"bully": election.Bully, "ring": election.Ring, "changroberts": election.ChangRoberts}

// explored explores a trial to the end, and finds nothing wrong.
func explored(t *testing.T, tr trial, states, rests int) {
	t.Helper()
	r, err := tr.Explore(search.Limits{MaxStates: 1_000_000})
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, states, r.States, "states")
	require.Equal(t, rests, r.Some, "at rest")
}

// Every run of these groups ends. Then the nodes that reach each other have the
// highest of them as the leader, in one epoch. Under the majority rule they have no
// leader if they are no majority. Before that, no epoch has two leaders, and no
// node's epoch falls. Under the majority rule, at most one side of a partition has
// a leader once all nodes have noticed the partition. The numbers are those found: a
// change of one is a finding. DMUTEX_LONG=1 adds the large groups.
func TestExplore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const plain, majority = false, true
	all, early := []int{0, 1, 2}, odds{Early: 1}
	for _, tt := range []struct {
		algorithm string
		nodes     int
		majority  bool
		starts    []int // nil: the group has a leader
		odds      odds
		states    int
		rests     int
		long      bool
	}{
		{"bully", 3, plain, all, odds{}, 388, 3, false},
		{"bully", 3, plain, all, early, 18_086, 14, false},
		{"bully", 3, plain, all, odds{Crashes: 1}, 6_766, 16, false},
		{"bully", 3, plain, []int{0}, odds{Crashes: 1}, 1_831, 13, false},
		{"bully", 3, plain, nil, odds{Crashes: 1, Recoveries: 1}, 2_244, 24, false},
		{"bully", 3, plain, nil, odds{Crashes: 2, Recoveries: 1}, 27_340, 126, true},
		{"bully", 3, plain, nil, odds{Wrong: 1}, 347, 8, false},
		{"bully", 3, plain, nil, odds{Wrong: 1, Early: 1}, 12_714, 31, false},
		{"bully", 3, plain, nil, odds{Crashes: 1, Wrong: 1}, 4_426, 49, false},
		{"bully", 3, plain, nil, odds{Cuts: 1}, 7_456, 21, false},
		{"bully", 3, plain, nil, odds{Crashes: 1, Cuts: 1}, 69_386, 144, true},
		{"bully", 3, plain, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 308_756, 76, true},
		{"bully", 3, plain, nil, odds{Restarts: 2}, 927, 20, false},
		{"bully", 4, plain, nil, odds{Crashes: 1}, 1_170, 10, false},
		{"bully", 4, plain, nil, odds{Crashes: 2}, 16_885, 52, false},
		{"bully", 3, majority, all, odds{}, 709, 2, false},
		{"bully", 3, majority, all, early, 21_543, 12, true},
		{"bully", 3, majority, all, odds{Crashes: 1}, 3_269, 17, false},
		{"bully", 3, majority, []int{0}, odds{Crashes: 1}, 4_302, 20, false},
		{"bully", 3, majority, nil, odds{Crashes: 1, Recoveries: 1}, 4_472, 11, false},
		{"bully", 3, majority, nil, odds{Crashes: 2, Recoveries: 1}, 35_517, 82, true},
		{"bully", 3, majority, nil, odds{Wrong: 1}, 495, 6, false},
		{"bully", 3, majority, nil, odds{Wrong: 1, Early: 1}, 10_790, 15, false},
		{"bully", 3, majority, nil, odds{Wrong: 2}, 40_898, 24, true},
		{"bully", 3, majority, nil, odds{Crashes: 1, Wrong: 1}, 5_560, 47, false},
		{"bully", 3, majority, nil, odds{Cuts: 1}, 26_594, 17, true},
		{"bully", 3, majority, nil, odds{Crashes: 1, Cuts: 1}, 166_410, 166, true},
		{"bully", 3, majority, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 124_845, 31, true},
		{"bully", 3, majority, nil, odds{Restarts: 2}, 3_098, 9, false},
		{"bully", 4, majority, nil, odds{Crashes: 1}, 10_622, 12, false},
		{"bully", 4, majority, nil, odds{Crashes: 2}, 55_305, 88, true},

		{"ring", 3, plain, all, odds{}, 14, 1, false},
		{"ring", 3, plain, all, early, 106, 3, false},
		{"ring", 3, plain, all, odds{Crashes: 1}, 438, 12, false},
		{"ring", 3, plain, nil, odds{Crashes: 1, Recoveries: 1}, 1_233, 8, false},
		{"ring", 3, plain, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 12_334, 17, false},
		{"ring", 3, plain, nil, odds{Crashes: 2, Recoveries: 1}, 22_859, 106, true},
		{"ring", 3, plain, nil, odds{Wrong: 2}, 16_491, 12, false},
		{"ring", 3, plain, nil, odds{Crashes: 1, Wrong: 1}, 5_318, 48, false},
		{"ring", 3, plain, nil, odds{Cuts: 1}, 26_707, 13, true},
		{"ring", 3, plain, nil, odds{Crashes: 1, Cuts: 1}, 342_084, 307, true},
		{"ring", 4, plain, nil, odds{Crashes: 2}, 3_615, 40, false},
		{"ring", 3, majority, all, odds{Crashes: 1}, 438, 12, false},
		{"ring", 3, majority, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 12_334, 17, false},
		{"ring", 3, majority, nil, odds{Crashes: 2, Recoveries: 1}, 17_862, 99, false},
		{"ring", 3, majority, nil, odds{Wrong: 2}, 16_179, 12, false},
		{"ring", 3, majority, nil, odds{Cuts: 1}, 24_737, 12, true},
		{"ring", 3, majority, nil, odds{Crashes: 1, Cuts: 1}, 218_501, 264, true},
		{"ring", 4, majority, nil, odds{Crashes: 2}, 2_206, 92, false},

		{"changroberts", 3, plain, all, odds{}, 14, 1, false},
		{"changroberts", 3, plain, all, early, 104, 4, false},
		{"changroberts", 3, plain, all, odds{Crashes: 1}, 540, 13, false},
		{"changroberts", 3, plain, nil, odds{Crashes: 1, Recoveries: 1}, 1_227, 11, false},
		{"changroberts", 3, plain, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 11_929, 26, false},
		{"changroberts", 3, plain, nil, odds{Crashes: 2, Recoveries: 1}, 24_193, 114, true},
		{"changroberts", 3, plain, nil, odds{Wrong: 2}, 23_497, 27, true},
		{"changroberts", 3, plain, nil, odds{Crashes: 1, Wrong: 1}, 7_700, 60, false},
		{"changroberts", 3, plain, nil, odds{Cuts: 1}, 21_792, 23, true},
		{"changroberts", 3, plain, nil, odds{Crashes: 1, Cuts: 1}, 314_807, 315, true},
		{"changroberts", 4, plain, nil, odds{Crashes: 2}, 5_353, 59, false},
		{"changroberts", 3, majority, all, odds{Crashes: 1}, 540, 13, false},
		{"changroberts", 3, majority, nil, odds{Crashes: 1, Recoveries: 1, Early: 1}, 11_929, 26, false},
		{"changroberts", 3, majority, nil, odds{Crashes: 2, Recoveries: 1}, 18_764, 115, false},
		{"changroberts", 3, majority, nil, odds{Wrong: 2}, 23_015, 28, true},
		{"changroberts", 3, majority, nil, odds{Cuts: 1}, 17_476, 21, false},
		{"changroberts", 3, majority, nil, odds{Crashes: 1, Cuts: 1}, 168_122, 268, true},
		{"changroberts", 4, majority, nil, odds{Crashes: 2}, 2_967, 120, false},
	} {
		t.Run(fmt.Sprintf("%s %d majority %v starts %v %+v", tt.algorithm, tt.nodes, tt.majority, tt.starts, tt.odds), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 5_000:
				machinetest.Thorough(t)
			}
			explored(t, trial{Algorithm: algorithms[tt.algorithm], Nodes: tt.nodes, Majority: tt.majority, OneSide: tt.majority, Starts: tt.starts, Odds: tt.odds}, tt.states, tt.rests)
		})
	}
}

// "There are never two leaders at the same instant", under the majority rule and with
// suspicion that is prompt and simultaneous, no matter what crashes, comes back, is cut
// off or starts again. Without the rule see testdata/mutant-*-no-majority.txt.
func TestOneLeader(t *testing.T) {
	for _, tt := range []struct {
		algorithm string
		nodes     int
		odds      odds
		states    int
		rests     int
		long      bool
	}{
		{"bully", 3, odds{Cuts: 1}, 462, 7, false},
		{"bully", 3, odds{Cuts: 2}, 19_527, 84, false},
		{"bully", 3, odds{Crashes: 1, Recoveries: 1, Cuts: 1}, 28_307, 149, true},
		{"bully", 3, odds{Crashes: 1, Recoveries: 1, Restarts: 1}, 15_621, 35, false},
		{"bully", 3, odds{Crashes: 1, Cuts: 1, Restarts: 1}, 65_082, 488, true},
		{"ring", 3, odds{Cuts: 1}, 315, 7, false},
		{"ring", 3, odds{Cuts: 2}, 12_318, 72, false},
		{"ring", 3, odds{Crashes: 1, Recoveries: 1, Cuts: 1}, 24_848, 183, true},
		{"ring", 3, odds{Crashes: 1, Recoveries: 1, Restarts: 1}, 2_755, 23, false},
		{"ring", 3, odds{Crashes: 1, Cuts: 1, Restarts: 1}, 35_444, 685, true},
		{"ring", 4, odds{Cuts: 1}, 4_089, 13, false},
		{"changroberts", 3, odds{Cuts: 1}, 476, 8, false},
		{"changroberts", 3, odds{Cuts: 2}, 24_435, 104, true},
		{"changroberts", 3, odds{Crashes: 1, Recoveries: 1, Cuts: 1}, 38_071, 215, true},
		{"changroberts", 3, odds{Crashes: 1, Recoveries: 1, Restarts: 1}, 2_638, 28, false},
		{"changroberts", 3, odds{Crashes: 1, Cuts: 1, Restarts: 1}, 57_019, 620, true},
		{"changroberts", 4, odds{Cuts: 1}, 6_137, 15, false},
	} {
		t.Run(fmt.Sprintf("%s %d %+v", tt.algorithm, tt.nodes, tt.odds), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 5_000:
				machinetest.Thorough(t)
			}
			explored(t, trial{Algorithm: algorithms[tt.algorithm], Nodes: tt.nodes, Majority: true, OneSide: true, Prompt: true, OneLeader: true, Odds: tt.odds}, tt.states, tt.rests)
		})
	}
}

// "A leader is announced only after a majority of all members has let it run",
// under the majority rule, also if timeouts and suspicions are wrong.
func TestLetRun(t *testing.T) {
	for _, tt := range []struct {
		algorithm string
		odds      odds
		states    int
		rests     int
		long      bool
	}{
		{"bully", odds{Wrong: 1, Early: 1}, 10_790, 15, false},
		{"bully", odds{Cuts: 1}, 26_594, 17, true},
		{"ring", odds{Wrong: 1, Early: 1}, 1_328, 9, false},
		{"ring", odds{Cuts: 1, Early: 1}, 305_510, 28, true},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.algorithm, tt.odds), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 5_000:
				machinetest.Thorough(t)
			}
			explored(t, trial{Algorithm: algorithms[tt.algorithm], Nodes: 3, Majority: true, OneSide: true, Counted: true, Odds: tt.odds}, tt.states, tt.rests)
		})
	}
}

// A node that comes back and has forgotten everything learns from the others.
func TestForgetful(t *testing.T) {
	for _, tt := range []struct {
		algorithm string
		majority  bool
		states    int
		rests     int
		long      bool
	}{
		{"bully", false, 4_119, 29, false},
		{"bully", true, 3_255, 9, false},
		{"ring", false, 930, 8, false},
		{"ring", true, 930, 8, false},
		{"changroberts", false, 1_257, 11, false},
		{"changroberts", true, 1_257, 11, false},
	} {
		t.Run(fmt.Sprint(tt.algorithm, " majority ", tt.majority), func(t *testing.T) {
			switch {
			case tt.long:
				machinetest.Long(t)
			case tt.states > 5_000:
				machinetest.Thorough(t)
			}
			explored(t, trial{Algorithm: algorithms[tt.algorithm], Nodes: 3, Majority: tt.majority, OneSide: tt.majority, Forgetful: true, Odds: odds{Crashes: 1, Recoveries: 1}}, tt.states, tt.rests)
		})
	}
}

// Every rule is needed: without it something goes wrong.
func TestMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fresh := []int{0, 1, 2}
	for _, tt := range []struct {
		name  string
		trial trial
		why   string
	}{
		{"bully-no-epochs", trial{Starts: fresh, Falls: true, Odds: odds{Early: 1}}, "at rest"},
		{"bully-old-not-answered", trial{Forgetful: true, Odds: odds{Crashes: 1, Recoveries: 1, Restarts: 1}}, "at rest"},
		{"bully-answer-names-nobody", trial{Most: 20, Odds: odds{Wrong: 1}}, "outbid"},
		{"bully-no-second-timeout", trial{Starts: fresh, Odds: odds{Crashes: 1}}, "at rest"},
		{"bully-suspect-contested", trial{Most: 20, Odds: odds{Wrong: 1}}, "outbid"},
		{"bully-runs-on", trial{Majority: true, OneSide: true, Prompt: true, OneLeader: true, Odds: odds{Crashes: 1, Recoveries: 1, Restarts: 1}}, "two leaders"},
		{"bully-not-let", trial{Majority: true, OneSide: true, Counted: true, Odds: odds{Cuts: 1, Restarts: 1, Early: 1}}, "no majority has let it run"},
		{"bully-minority-leads-on", trial{Majority: true, OneSide: true, Prompt: true, OneLeader: true, Odds: odds{Cuts: 1}}, "two leaders"},
		{"ring-no-timeout", trial{Starts: fresh, Odds: odds{Crashes: 1}}, "at rest"},
		{"ring-successor-not-told", trial{Odds: odds{Crashes: 1, Cuts: 1}}, "at rest"},
		{"ring-office-of-the-outrun", trial{Majority: true, OneSide: true, Prompt: true, OneLeader: true, Odds: odds{Crashes: 1, Cuts: 1, Restarts: 1}}, "two leaders"},
		{"changroberts-no-count", trial{Starts: fresh, Odds: odds{Crashes: 1}}, "repeat forever"},
		{"changroberts-leads-beside", trial{Majority: true, OneSide: true, Prompt: true, OneLeader: true, Odds: odds{Cuts: 2}}, "two leaders"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.trial.Algorithm = election.Mutants[tt.name]
			requireWrong(t, tt.name, tt.trial, tt.why)
		})
	}
}

// Without the majority rule a partition has two leaders, also when everybody
// has noticed it.
func TestNoMajority(t *testing.T) {
	for name, algorithm := range algorithms {
		t.Run(name, func(t *testing.T) {
			tr := trial{Algorithm: algorithm, Prompt: true, OneLeader: true, Odds: odds{Cuts: 1}}
			requireWrong(t, name+"-no-majority", tr, "two leaders")
		})
	}
}

// requireWrong requires that three nodes go wrong, and compares a shortest such run
// with a file in testdata.
func requireWrong(t *testing.T, name string, tr trial, why string) {
	t.Helper()
	tr.Nodes = 3
	_, err := tr.Explore(search.Limits{MaxStates: 1_000_000})
	require.ErrorContains(t, err, why)
	goldentest.Violation(t, "testdata/mutant-"+name+".txt", err, nil)
}
