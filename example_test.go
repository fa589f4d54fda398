package dmutex_test

import (
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
)

// A node drives its machine: it sends the messages that a call returns, and handles
// those that arrive. Here the network is a queue in memory.
func Example() {
	members := []dmutex.NodeID{1, 2, 3}
	machines := make(map[dmutex.NodeID]dmutex.Machine)
	for _, self := range members {
		m, err := ricart.New(dmutex.Start{Self: self, Members: members})
		if err != nil {
			fmt.Println(err) // the Start is invalid
			return
		}
		machines[self] = m
	}

	var wire []dmutex.Message
	send := func(out []dmutex.Message, err error) {
		if err != nil {
			fmt.Println(err) // nothing has changed
		}
		for _, m := range out {
			wire = append(wire, m.Clone()) // the next call overwrites it
		}
	}
	deliver := func() {
		m := wire[0]
		wire = wire[1:]
		fmt.Println(m)
		send(machines[m.To].Handle(m))
	}

	two := machines[2]
	send(two.Request())
	for two.Phase() != dmutex.Held { // a grant is a phase, not an event
		deliver()
	}
	fmt.Println("node 2 is in the critical section, by fence", two.Fence())
	send(two.Release())
	fmt.Println("node 2 is", two.Phase())
	// Output:
	// 2->1 REQUEST attempt=1
	// 2->3 REQUEST attempt=1
	// 1->2 REPLY attempt=1
	// 3->2 REPLY attempt=1
	// node 2 is in the critical section, by fence 1
	// node 2 is idle
}
