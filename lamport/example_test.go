package lamport_test

import (
	"fmt"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/lamport"
)

// Two nodes ask at the same time. Node 1 goes first: of two requests with the same
// time, the one of the lower node precedes.
func ExampleNew() {
	conversation, err := dmutextest.RunScript(lamport.New, `
group 1 2
request 1
request 2
deliver all
release 1
deliver all
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2
	// request 1
	// request 2
	// deliver all
	// release 1
	// deliver all
	// ----
	// 1 waiting
	// 1->2 REQUEST attempt=1 clock=1
	// 2 waiting
	// 2->1 REQUEST attempt=1 clock=1
	// 2->1 REPLY attempt=1 clock=2
	// 1 held fence=1
	// 1->2 REPLY attempt=1 clock=2
	// 1 idle
	// 1->2 RELEASE attempt=1 clock=4 fence=1
	// 2 held fence=2
}

// The same without the replies that tell nothing new.
func ExampleOmitReplies() {
	conversation, err := dmutextest.RunScript(lamport.OmitReplies, `
group 1 2
request 1
request 2
deliver all
release 1
deliver all
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2
	// request 1
	// request 2
	// deliver all
	// release 1
	// deliver all
	// ----
	// 1 waiting
	// 1->2 REQUEST attempt=1 clock=1
	// 2 waiting
	// 2->1 REQUEST attempt=1 clock=1
	// 1 held fence=1
	// 1 idle
	// 1->2 RELEASE attempt=1 clock=3 fence=1
	// 2 held fence=2
}
