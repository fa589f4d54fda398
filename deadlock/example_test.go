package deadlock_test

import (
	"fmt"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/deadlock"
)

// Node 1 waits for 2 and node 2 for 1. Both requests have been sent and received. Then
// node 1 starts detection.
func Example() {
	members := []dmutex.NodeID{1, 2}
	one, err := deadlock.NewAnd(1, members)
	if err != nil {
		panic(err)
	}
	two, err := deadlock.NewAnd(2, members)
	if err != nil {
		panic(err)
	}
	for _, err := range []error{
		one.Wait([]dmutex.NodeID{2}), two.Asked(1),
		two.Wait([]dmutex.NodeID{1}), one.Asked(2),
	} {
		if err != nil {
			panic(err)
		}
	}

	probes, _ := one.Detect()
	fmt.Println(probes[0])
	probes, _ = two.Handle(probes[0])
	fmt.Println(probes[0])
	_, _ = one.Handle(probes[0])
	fmt.Println(one.Deadlocked())
	// Output:
	// 1->2 PROBE 1#1
	// 2->1 PROBE 1#1
	// true
}
