package election_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/election"
)

// TestToldOneSideFirst: "the side that is told first may elect a leader while the
// other side's leader still leads". Node 3 leads, and is cut off. Nodes 1 and 2
// are told, and elect node 2, before node 3 is told. Still each node is told before
// anything else happens to it. TestOneLeader explores the claim itself, where all are told
// at the same instant.
func TestToldOneSideFirst(t *testing.T) {
	for name, algorithm := range map[string]election.Algorithm{
		"bully": election.Bully, "ring": election.Ring, "changroberts": election.ChangRoberts,
	} {
		t.Run(name, func(t *testing.T) {
			members := []dmutex.NodeID{1, 2, 3}
			machines := make(map[dmutex.NodeID]election.Machine)
			for _, node := range members {
				m, err := algorithm(election.Config{Self: node, Members: members, Majority: true, Answer: 2, Outcome: 6})
				require.NoError(t, err)
				machines[node] = m
			}
			cut := false
			var queue []election.Message
			send := func(out []election.Message) { queue = append(queue, out...) }
			deliver := func() {
				for len(queue) > 0 {
					msg := queue[0]
					queue = queue[1:]
					if cut && (msg.From == 3 || msg.To == 3) {
						continue
					}
					out, err := machines[msg.To].Handle(msg)
					require.NoError(t, err)
					send(out)
				}
			}
			suspect := func(node, whom dmutex.NodeID) {
				out, err := machines[node].Suspect(whom)
				require.NoError(t, err)
				send(out)
			}
			leads := func() (leaders []dmutex.NodeID) {
				for _, node := range members {
					if leader, _ := machines[node].Leader(); leader == node {
						leaders = append(leaders, node)
					}
				}
				return leaders
			}
			send(machines[3].Start())
			deliver()
			require.Equal(t, []dmutex.NodeID{3}, leads())

			cut = true
			suspect(1, 3)
			suspect(2, 3)
			for range 20 { // timeouts, if the election needs them
				deliver()
				send(machines[1].Tick())
				send(machines[2].Tick())
			}
			require.Equal(t, []dmutex.NodeID{2, 3}, leads(), "node 3 was not told")
			_, old := machines[3].Leader()
			_, epoch := machines[2].Leader()
			require.Greater(t, epoch, old)
			suspect(3, 1)
			suspect(3, 2)
			deliver()
			require.Equal(t, []dmutex.NodeID{2}, leads())
		})
	}
}
