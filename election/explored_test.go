package election

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func long(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("long: DMUTEX_LONG=1 runs it")
	}
}

// Every run of these groups comes to rest, and then all that reach each other
// have the highest of them as the leader, in one epoch; or none, if the
// majority rule is on and they are no majority. On the way there are never two
// leaders of one epoch, at no node does an epoch fall, and under the majority
// rule there are never two leaders on the sides of a partition that all have
// noticed. The numbers are what is there: a change of one is a finding.
// DMUTEX_LONG=1 adds the large groups.
func TestExplore(t *testing.T) {
	const plain, majority = false, true
	all, early := []int{0, 1, 2}, odds{early: 1}
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
		{"bully", 3, plain, all, odds{crashes: 1}, 6_766, 16, false},
		{"bully", 3, plain, []int{0}, odds{crashes: 1}, 1_831, 13, false},
		{"bully", 3, plain, nil, odds{crashes: 1, recoveries: 1}, 2_244, 24, false},
		{"bully", 3, plain, nil, odds{crashes: 2, recoveries: 1}, 27_340, 126, true},
		{"bully", 3, plain, nil, odds{wrong: 1}, 347, 8, false},
		{"bully", 3, plain, nil, odds{wrong: 1, early: 1}, 12_714, 31, false},
		{"bully", 3, plain, nil, odds{crashes: 1, wrong: 1}, 4_426, 49, false},
		{"bully", 3, plain, nil, odds{cuts: 1}, 7_456, 21, false},
		{"bully", 3, plain, nil, odds{crashes: 1, cuts: 1}, 69_386, 144, true},
		{"bully", 3, plain, nil, odds{crashes: 1, recoveries: 1, early: 1}, 308_756, 76, true},
		{"bully", 3, plain, nil, odds{restarts: 2}, 927, 20, false},
		{"bully", 4, plain, nil, odds{crashes: 1}, 1_170, 10, false},
		{"bully", 4, plain, nil, odds{crashes: 2}, 16_885, 52, false},
		{"bully", 3, majority, all, odds{}, 709, 2, false},
		{"bully", 3, majority, all, early, 21_543, 12, true},
		{"bully", 3, majority, all, odds{crashes: 1}, 3_269, 17, false},
		{"bully", 3, majority, []int{0}, odds{crashes: 1}, 4_302, 20, false},
		{"bully", 3, majority, nil, odds{crashes: 1, recoveries: 1}, 4_472, 11, false},
		{"bully", 3, majority, nil, odds{crashes: 2, recoveries: 1}, 35_517, 82, true},
		{"bully", 3, majority, nil, odds{wrong: 1}, 495, 6, false},
		{"bully", 3, majority, nil, odds{wrong: 1, early: 1}, 10_790, 15, false},
		{"bully", 3, majority, nil, odds{wrong: 2}, 40_898, 24, true},
		{"bully", 3, majority, nil, odds{crashes: 1, wrong: 1}, 5_560, 47, false},
		{"bully", 3, majority, nil, odds{cuts: 1}, 26_594, 17, true},
		{"bully", 3, majority, nil, odds{crashes: 1, cuts: 1}, 166_410, 166, true},
		{"bully", 3, majority, nil, odds{crashes: 1, recoveries: 1, early: 1}, 124_845, 31, true},
		{"bully", 3, majority, nil, odds{restarts: 2}, 3_098, 9, false},
		{"bully", 4, majority, nil, odds{crashes: 1}, 10_622, 12, false},
		{"bully", 4, majority, nil, odds{crashes: 2}, 55_305, 88, true},

		{"ring", 3, plain, all, odds{}, 14, 1, false},
		{"ring", 3, plain, all, early, 106, 3, false},
		{"ring", 3, plain, all, odds{crashes: 1}, 438, 12, false},
		{"ring", 3, plain, nil, odds{crashes: 1, recoveries: 1}, 1_233, 8, false},
		{"ring", 3, plain, nil, odds{crashes: 1, recoveries: 1, early: 1}, 12_334, 17, false},
		{"ring", 3, plain, nil, odds{crashes: 2, recoveries: 1}, 22_859, 106, true},
		{"ring", 3, plain, nil, odds{wrong: 2}, 16_491, 12, false},
		{"ring", 3, plain, nil, odds{crashes: 1, wrong: 1}, 5_318, 48, false},
		{"ring", 3, plain, nil, odds{cuts: 1}, 26_707, 13, true},
		{"ring", 3, plain, nil, odds{crashes: 1, cuts: 1}, 342_084, 307, true},
		{"ring", 4, plain, nil, odds{crashes: 2}, 3_615, 40, false},
		{"ring", 3, majority, all, odds{crashes: 1}, 438, 12, false},
		{"ring", 3, majority, nil, odds{crashes: 1, recoveries: 1, early: 1}, 12_334, 17, false},
		{"ring", 3, majority, nil, odds{crashes: 2, recoveries: 1}, 17_862, 99, false},
		{"ring", 3, majority, nil, odds{wrong: 2}, 16_179, 12, false},
		{"ring", 3, majority, nil, odds{cuts: 1}, 24_737, 12, true},
		{"ring", 3, majority, nil, odds{crashes: 1, cuts: 1}, 218_501, 264, true},
		{"ring", 4, majority, nil, odds{crashes: 2}, 2_206, 92, false},

		{"changroberts", 3, plain, all, odds{}, 14, 1, false},
		{"changroberts", 3, plain, all, early, 104, 4, false},
		{"changroberts", 3, plain, all, odds{crashes: 1}, 540, 13, false},
		{"changroberts", 3, plain, nil, odds{crashes: 1, recoveries: 1}, 1_227, 11, false},
		{"changroberts", 3, plain, nil, odds{crashes: 1, recoveries: 1, early: 1}, 11_929, 26, false},
		{"changroberts", 3, plain, nil, odds{crashes: 2, recoveries: 1}, 24_193, 114, true},
		{"changroberts", 3, plain, nil, odds{wrong: 2}, 23_497, 27, true},
		{"changroberts", 3, plain, nil, odds{crashes: 1, wrong: 1}, 7_700, 60, false},
		{"changroberts", 3, plain, nil, odds{cuts: 1}, 21_792, 23, true},
		{"changroberts", 3, plain, nil, odds{crashes: 1, cuts: 1}, 314_807, 315, true},
		{"changroberts", 4, plain, nil, odds{crashes: 2}, 5_353, 59, false},
		{"changroberts", 3, majority, all, odds{crashes: 1}, 540, 13, false},
		{"changroberts", 3, majority, nil, odds{crashes: 1, recoveries: 1, early: 1}, 11_929, 26, false},
		{"changroberts", 3, majority, nil, odds{crashes: 2, recoveries: 1}, 18_764, 115, false},
		{"changroberts", 3, majority, nil, odds{wrong: 2}, 23_015, 28, true},
		{"changroberts", 3, majority, nil, odds{cuts: 1}, 17_476, 21, false},
		{"changroberts", 3, majority, nil, odds{crashes: 1, cuts: 1}, 168_122, 268, true},
		{"changroberts", 4, majority, nil, odds{crashes: 2}, 2_967, 120, false},
	} {
		t.Run(fmt.Sprintf("%s %d majority %v starts %v %+v", tt.algorithm, tt.nodes, tt.majority, tt.starts, tt.odds), func(t *testing.T) {
			if tt.long {
				long(t)
			}
			tr := &trial{algorithm: algorithm(tt.algorithm), nodes: tt.nodes, majority: tt.majority, starts: tt.starts, odds: tt.odds}
			r, run, err := tr.explore()
			require.NoError(t, err, run)
			require.Equal(t, report{tt.states, tt.rests}, r)
		})
	}
}

// "There are never two leaders at the same instant", under the majority rule
// and with prompt suspicion, whatever crashes, comes back, is cut off or starts
// anew. Without the rule see testdata/mutant-*-no-majority.txt.
func TestOneLeader(t *testing.T) {
	for _, tt := range []struct {
		algorithm string
		nodes     int
		odds      odds
		states    int
		rests     int
		long      bool
	}{
		{"bully", 3, odds{cuts: 1}, 462, 7, false},
		{"bully", 3, odds{cuts: 2}, 19_527, 84, false},
		{"bully", 3, odds{crashes: 1, recoveries: 1, cuts: 1}, 28_307, 149, true},
		{"bully", 3, odds{crashes: 1, recoveries: 1, restarts: 1}, 15_621, 35, false},
		{"bully", 3, odds{crashes: 1, cuts: 1, restarts: 1}, 65_082, 488, true},
		{"ring", 3, odds{cuts: 1}, 315, 7, false},
		{"ring", 3, odds{cuts: 2}, 12_318, 72, false},
		{"ring", 3, odds{crashes: 1, recoveries: 1, cuts: 1}, 24_848, 183, true},
		{"ring", 3, odds{crashes: 1, recoveries: 1, restarts: 1}, 2_755, 23, false},
		{"ring", 3, odds{crashes: 1, cuts: 1, restarts: 1}, 35_444, 685, true},
		{"ring", 4, odds{cuts: 1}, 4_089, 13, false},
		{"changroberts", 3, odds{cuts: 1}, 476, 8, false},
		{"changroberts", 3, odds{cuts: 2}, 24_435, 104, true},
		{"changroberts", 3, odds{crashes: 1, recoveries: 1, cuts: 1}, 38_071, 215, true},
		{"changroberts", 3, odds{crashes: 1, recoveries: 1, restarts: 1}, 2_638, 28, false},
		{"changroberts", 3, odds{crashes: 1, cuts: 1, restarts: 1}, 57_019, 620, true},
		{"changroberts", 4, odds{cuts: 1}, 6_137, 15, false},
	} {
		t.Run(fmt.Sprintf("%s %d %+v", tt.algorithm, tt.nodes, tt.odds), func(t *testing.T) {
			if tt.long {
				long(t)
			}
			tr := &trial{algorithm: algorithm(tt.algorithm), nodes: tt.nodes, majority: true, prompt: true, oneLeader: true, odds: tt.odds}
			r, run, err := tr.explore()
			require.NoError(t, err, run)
			require.Equal(t, report{tt.states, tt.rests}, r)
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
		{"bully", odds{wrong: 1, early: 1}, 10_790, 15, false},
		{"bully", odds{cuts: 1}, 26_594, 17, true},
		{"ring", odds{wrong: 1, early: 1}, 1_328, 9, false},
		{"ring", odds{cuts: 1, early: 1}, 305_510, 28, true},
	} {
		t.Run(fmt.Sprintf("%s %+v", tt.algorithm, tt.odds), func(t *testing.T) {
			if tt.long {
				long(t)
			}
			tr := &trial{algorithm: algorithm(tt.algorithm), nodes: 3, majority: true, counted: true, odds: tt.odds}
			r, run, err := tr.explore()
			require.NoError(t, err, run)
			require.Equal(t, report{tt.states, tt.rests}, r)
		})
	}
}

// Who comes back and has forgotten everything learns from the others.
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
			if tt.long {
				long(t)
			}
			tr := &trial{algorithm: algorithm(tt.algorithm), nodes: 3, majority: tt.majority, forgetful: true, odds: odds{crashes: 1, recoveries: 1}}
			r, run, err := tr.explore()
			require.NoError(t, err, run)
			require.Equal(t, report{tt.states, tt.rests}, r)
		})
	}
}

func algorithm(name string) Algorithm {
	for _, f := range families {
		if f.name == name {
			return f.algorithm
		}
	}
	panic(name)
}
