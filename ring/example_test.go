package ring_test

import (
	"fmt"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ring"
)

// The token rests at node 1. WANT goes around the ring until it meets the token, and
// the token goes around to the node that wants it.
func ExampleNew() {
	conversation, err := dmutextest.RunScript(ring.New, `
group 1 2 3
request 2
deliver all
release 2
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2 3
	// request 2
	// deliver all
	// release 2
	// ----
	// 2 waiting
	// 2->3 REQUEST attempt=1 nodes=2
	// 3->1 REQUEST attempt=1 nodes=2
	// 1->2 TOKEN nodes=2
	// 2 held fence=1
	// 2 idle
}

// The token goes around by itself: an idle node passes it on after a tick.
func ExampleCirculate() {
	conversation, err := dmutextest.RunScript(ring.Circulate(1), `
group 1 2 3
request 3
tick 1
deliver all
tick 2
deliver all
release 3
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2 3
	// request 3
	// tick 1
	// deliver all
	// tick 2
	// deliver all
	// release 3
	// ----
	// 3 waiting
	// 1->2 TOKEN
	// 2->3 TOKEN
	// 3 held fence=1
	// 3 idle
	// 3->1 TOKEN fence=1
}
