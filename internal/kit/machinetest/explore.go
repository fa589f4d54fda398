// Package machinetest is what the tests of several machines share in addition to package
// dmutextest. An [Exploration] is a group with all its interleavings. A [Probe] breaks a
// rule of a machine, and the exploration must fail. [Kill] removes one condition of its
// source at a time, and a test must fail.
//
// The tests of each algorithm are in files of the same names:
//
//	machine_test.go  the contract of dmutex.Machine, fuzzed and measured
//	explore_test.go  every interleaving of small groups, and random runs of larger ones
//	paper_test.go    what the paper, or the package comment, claims
//	script_test.go   conversations, to read
//	mutant_test.go   what goes wrong without each of the rules
//	refuse_test.go   what is refused, and what is ignored
//	example_test.go  how to make the machines
package machinetest

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/internal/kit/quicktest"
)

// Long skips a test that takes long, unless DMUTEX_LONG is set, such as to 1.
func Long(t *testing.T) {
	if os.Getenv("DMUTEX_LONG") == "" {
		t.Skip("takes long; set DMUTEX_LONG=1")
	}
}

// Thorough skips a test that is too slow for each go test of a person, unless CI is set, as it is for .ci/run, or
// DMUTEX_LONG.
func Thorough(t *testing.T) {
	if quicktest.On() {
		t.Skip("takes seconds; set CI=1")
	}
}

// An Exploration is a group of the nodes 1 to Nodes, and what exploring it must give: the
// numbers, or what goes wrong because the algorithm has one of its rules broken.
type Exploration struct {
	Name      string // of the Algorithm, if a test has several, or of the broken rule
	Algorithm dmutex.Algorithm
	Nodes     int
	Holder    dmutex.NodeID
	Sharers   []dmutex.NodeID
	Home      dmutex.NodeID
	Network   dmutextest.Network

	// How often in a run, for all nodes or for each.
	Requests, Shares, Cancels, Ticks, Forgets []int

	Stamped bool // see [dmutextest.Config]

	Long bool // see [Long]

	States   int
	Messages [2]int // least and greatest of a whole run
	Most     int    // messages in flight from one node to another; 0 is not checked

	Want error // such as dmutextest.ErrMutualExclusion; the shortest run is in testdata/mutant-NAME.txt
}

// ExploreAll explores each of the groups to the end. It checks that nothing is wrong
// except Want, that no fence is skipped, and that the numbers are as expected.
func ExploreAll(t *testing.T, all []Exploration) {
	for _, e := range all {
		name := e.Name
		if e.Want == nil {
			name = fmt.Sprint(name, " ", e.Nodes, " nodes, requests ", e.Requests, " cancels ", e.Cancels, " holder ", e.Holder, " home ", e.Home, ", ", e.Network)
			if e.Shares != nil {
				name += fmt.Sprint(", shares ", e.Shares, " sharers ", e.Sharers, " forgets ", e.Forgets)
			}
		}
		t.Run(name, func(t *testing.T) {
			switch {
			case e.Long:
				Long(t)
			case e.States > 40_000:
				Thorough(t)
			}
			c := dmutextest.Config{
				Algorithm: e.Algorithm, Members: dmutextest.Nodes(e.Nodes), Holder: e.Holder, Home: e.Home, Network: e.Network,
				Requests: e.Requests, Shares: e.Shares, Cancels: e.Cancels, Ticks: e.Ticks, Forgets: e.Forgets,
				Sharers: e.Sharers, Stamped: e.Stamped,
			}
			if e.Want != nil {
				dmutextest.Refute(t, c, e.Want, "testdata/mutant-"+e.Name+".txt")
				return
			}
			if e.Shares != nil {
				r, err := dmutextest.Explore(c)
				require.NoError(t, err)
				t.Log(r)
				require.True(t, r.Complete, r)
				require.Greater(t, r.Inside, 1, "nodes share")
				require.Equal(t, e.States, r.States, "states")
				return
			}
			r := Explore(t, c)
			require.Equal(t, e.States, r.States, "states")
			require.Equal(t, e.Messages, [2]int{r.Least, r.Greatest}, "messages")
			if e.Most > 0 {
				require.Equal(t, e.Most, r.Most, "most messages in flight from one node to another")
			}
		})
	}
}

// Explore explores a group to the end. Nothing must be wrong, and no fence skipped.
func Explore(t *testing.T, c dmutextest.Config) dmutextest.Report {
	t.Helper()
	r, err := dmutextest.Explore(c)
	require.NoError(t, err)
	t.Log(r)
	require.True(t, r.Complete, r)
	require.True(t, r.Dense, r)
	return r
}

// Excludes checks which peers each of the nodes 1 to n excludes as the group begins.
func Excludes(t *testing.T, algorithm dmutex.Algorithm, start dmutex.Start, want [][]dmutex.NodeID) {
	t.Helper()
	start.Members = dmutextest.Nodes(len(want))
	for i, self := range start.Members {
		start.Self = self
		m, err := algorithm(start)
		require.NoError(t, err)
		var got []dmutex.NodeID
		for _, id := range start.Members {
			if id != self && m.(dmutex.Excluder).Excludes(id) {
				got = append(got, id)
			}
		}
		require.Equal(t, want[i], got, "%+v", start)
	}
}
