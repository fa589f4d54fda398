package dmutextest_test

import (
	"fmt"
	"math"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/suzukikasami"
)

// A machine needs no network: its methods return the messages to send.
func Example() {
	machines := map[dmutex.NodeID]dmutex.Machine{}
	for _, self := range []dmutex.NodeID{1, 2} {
		machines[self], _ = ricart.New(dmutex.Start{Self: self, Members: []dmutex.NodeID{1, 2}})
	}
	var wire []dmutex.Message
	send := func(out []dmutex.Message, err error) {
		for _, m := range out {
			fmt.Println(m)
			wire = append(wire, m.Clone())
		}
	}
	send(machines[1].Request())
	send(machines[2].Request()) // both at the same time
	for ; len(wire) > 0; wire = wire[1:] {
		send(machines[wire[0].To].Handle(wire[0]))
	}
	fmt.Println("1 is", machines[1].Phase(), "and 2 is", machines[2].Phase())
	// Output:
	// 1->2 REQUEST attempt=1
	// 2->1 REQUEST attempt=1
	// 2->1 REPLY attempt=1
	// 1 is held and 2 is waiting
}

// Explore runs every order of events of a small group, and reports in one line what was
// proved.
func ExampleExplore() {
	report, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: ricart.New,
		Members:   dmutextest.Nodes(3),
		Requests:  []int{1},
		Cancels:   []int{1},
		Network:   dmutextest.Network{Unordered: true},
	})
	fmt.Println(err)
	fmt.Println(report)
	// Output:
	// <nil>
	// 19571 states, 85953 steps, depth 18, unordered, at most 2 in a channel, 12 to 12 messages a run, dense fences, complete
}

// If something goes wrong, the error is the shortest run to it, as a script. Ricart and
// Agrawala's algorithm does not survive the loss of a message.
func ExampleExplore_violation() {
	_, err := dmutextest.Explore(dmutextest.Config{
		Algorithm: ricart.New,
		Members:   dmutextest.Nodes(2),
		Requests:  []int{1},
		Network:   dmutextest.Network{Losses: 1},
	})
	fmt.Println(err)
	// Output:
	// dmutextest: deadlock: 1 waits, no node holds the lock and no message is in flight
	//
	// # deadlock: 1 waits, no node holds the lock and no message is in flight
	// group 1 2
	// network fifo, 1 loss
	//
	// request 1
	// ----
	// 1 waiting
	// 1->2 REQUEST attempt=1
	//
	// lose 1->2 REQUEST attempt=1
	// ----
	// violation: deadlock: 1 waits, no node holds the lock and no message is in flight
}

// A conversation as text: RunScript fills in what the machines do.
func ExampleRunScript() {
	script, err := dmutextest.RunScript(ricart.New, `
group 1 2

request 2
deliver all

request 1
deliver all

release 2
deliver all
`)
	fmt.Println(script, err)
	// Output:
	// group 1 2
	//
	// request 2
	// deliver all
	// ----
	// 2 waiting
	// 2->1 REQUEST attempt=1
	// 1->2 REPLY attempt=1
	// 2 held fence=1
	//
	// request 1
	// deliver all
	// ----
	// 1 waiting
	// 1->2 REQUEST attempt=2
	//
	// release 2
	// deliver all
	// ----
	// 2 idle
	// 2->1 REPLY attempt=2 fence=1
	// 1 held fence=2
	//  <nil>
}

// Messages and delays under a rare and under a saturated load.
func ExampleSimulate() {
	for _, think := range []float64{math.Inf(1), 0} { // rare, and saturated
		r, err := dmutextest.Simulate(dmutextest.SimConfig{
			Algorithm: suzukikasami.New,
			Members:   dmutextest.Nodes(100),
			Think:     think,
			Hold:      1,
			Entries:   2000,
			Seed:      1,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%.2f messages an entry, %.2f T from request to entry, %.2f T from release to entry\n",
			float64(r.Messages)/float64(r.Entries), r.Wait.Mean, r.Next.Mean)
	}
	// Output:
	// 99.20 messages an entry, 1.98 T from request to entry, 0.00 T from release to entry
	// 99.95 messages an entry, 194.00 T from request to entry, 1.00 T from release to entry
}
