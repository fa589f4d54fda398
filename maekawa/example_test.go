package maekawa_test

import (
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/maekawa"
	"github.com/dmutex/dmutex/quorum"
)

// Each of the seven nodes of the smallest projective plane asks three nodes, among them
// itself.
func ExampleWith() {
	plane, err := quorum.Plane[dmutex.NodeID](1, 2, 3, 4, 5, 6, 7)
	if err != nil {
		fmt.Println(err)
		return
	}
	assignment, err := plane.Assign()
	if err != nil {
		fmt.Println(err)
		return
	}
	algorithm := maekawa.With(assignment.Quorum)

	m, err := algorithm(dmutex.Start{Self: 3, Members: plane.Sites()})
	if err != nil {
		fmt.Println(err)
		return
	}
	out, err := m.Request()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("node 3 asks", len(out), "others")
	// Output:
	// node 3 asks 2 others
}

// Two quorums that share no node would let both enter.
func ExampleWith_refused() {
	algorithm := maekawa.With(func(site dmutex.NodeID) []dmutex.NodeID {
		return []dmutex.NodeID{site}
	})
	_, err := algorithm(dmutex.Start{Self: 1, Members: []dmutex.NodeID{1, 2}})
	fmt.Println(err)
	// Output:
	// dmutex: misuse: the quorums of nodes 1 and 2 share no node: both could enter at once
}
