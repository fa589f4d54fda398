package suzukikasami_test

import (
	"fmt"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/suzukikasami"
)

// The token begins at node 1. A REQUEST goes to all others. The token carries the number
// of each node's last request that was queued or served.
func ExampleNew() {
	conversation, err := dmutextest.RunScript(suzukikasami.New, `
group 1 2 3
request 3
deliver all
release 3
request 3
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2 3
	// request 3
	// deliver all
	// release 3
	// request 3
	// ----
	// 3 waiting
	// 3->1 REQUEST attempt=1
	// 3->2 REQUEST attempt=1
	// 1->3 TOKEN attempt=1 numbers=0,0,1
	// 3 held fence=1
	// 3 idle
	// 3 held fence=2
}
