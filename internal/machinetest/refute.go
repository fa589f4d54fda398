package machinetest

import (
	"testing"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
)

// A Mutation is an algorithm with one of its rules broken, and a group of the
// nodes 1 to Nodes in which that goes wrong.
type Mutation struct {
	Name      string // the shortest run is in testdata/mutant-NAME.txt
	Algorithm dmutex.Algorithm
	Nodes     int
	Network   dmutextest.Network

	Requests, Cancels []int // in a run, for all nodes or for each

	Want error // what goes wrong, such as dmutextest.ErrMutualExclusion
}

// RefuteAll finds that each of the mutations goes wrong.
func RefuteAll(t *testing.T, all []Mutation) {
	for _, m := range all {
		t.Run(m.Name, func(t *testing.T) {
			dmutextest.Refute(t, dmutextest.Config{
				Algorithm: m.Algorithm,
				Members:   dmutextest.Nodes(m.Nodes),
				Network:   m.Network,
				Requests:  m.Requests,
				Cancels:   m.Cancels,
			}, m.Want, "testdata/mutant-"+m.Name+".txt")
		})
	}
}
