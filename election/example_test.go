package election_test

import (
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/election"
)

// The driving loop, without a network, hands over the messages that a call returns.
// The lowest of three nodes begins; the highest leads.
func Example() {
	members := []dmutex.NodeID{1, 2, 3}
	machines := map[dmutex.NodeID]election.Machine{}
	for _, node := range members {
		m, err := election.Bully(election.Config{Self: node, Members: members, Answer: 2, Outcome: 6})
		if err != nil {
			panic(err)
		}
		machines[node] = m
	}
	var queue []election.Message
	send := func(out []election.Message) { queue = append(queue, out...) }
	send(machines[1].Start())
	for len(queue) > 0 {
		msg := queue[0]
		queue = queue[1:]
		fmt.Println(msg)
		out, err := machines[msg.To].Handle(msg)
		if err != nil {
			panic(err)
		}
		send(out)
	}
	for _, node := range members {
		fmt.Println(machines[node].Leader())
	}
	// Output:
	// 1->2 ELECTION ballot=3
	// 1->3 ELECTION ballot=3
	// 2->1 ANSWER ballot=3
	// 2->3 ELECTION ballot=4
	// 3->1 ANSWER ballot=3
	// 3->1 COORDINATOR epoch=5
	// 3->2 COORDINATOR epoch=5
	// 3->2 ANSWER ballot=5
	// 3->2 COORDINATOR epoch=5
	// 3 5
	// 3 5
	// 3 5
}
