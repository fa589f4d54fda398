package central_test

import (
	"fmt"

	"github.com/dmutex/dmutex/central"
	"github.com/dmutex/dmutex/dmutextest"
)

// Node 2 is the coordinator. Node 3 asks it, and while 3 is in the critical section
// node 1 is queued.
func ExampleAt() {
	conversation, err := dmutextest.RunScript(central.At(2), `
group 1 2 3
request 3
deliver all
request 1
deliver all
release 3
deliver all
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2 3
	// request 3
	// deliver all
	// request 1
	// deliver all
	// release 3
	// deliver all
	// ----
	// 3 waiting
	// 3->2 REQUEST attempt=1
	// 2->3 GRANT attempt=1
	// 3 held fence=1
	// 1 waiting
	// 1->2 REQUEST attempt=1
	// 3 idle
	// 3->2 RELEASE attempt=1 fence=1
	// 2->1 GRANT attempt=1 fence=1
	// 1 held fence=2
}
