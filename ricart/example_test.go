package ricart_test

import (
	"fmt"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
)

// Two nodes ask at the same time. Node 2 replies at once, since its request comes
// later; node 1 replies when it leaves.
func ExampleNew() {
	conversation, err := dmutextest.RunScript(ricart.New, `
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
	// 1->2 REQUEST attempt=1
	// 2 waiting
	// 2->1 REQUEST attempt=1
	// 2->1 REPLY attempt=1
	// 1 held fence=1
	// 1 idle
	// 1->2 REPLY attempt=1 fence=1
	// 2 held fence=2
}

// A node that has all permissions enters again without a message.
func ExampleCarvalho() {
	conversation, err := dmutextest.RunScript(ricart.Carvalho, `
group 1 2 3
request 1
deliver all
release 1
request 1
`)
	if err != nil {
		fmt.Println(err)
	}
	fmt.Print(conversation)
	// Output:
	// group 1 2 3
	// request 1
	// deliver all
	// release 1
	// request 1
	// ----
	// 1 waiting
	// 1->2 REQUEST attempt=1
	// 1->3 REQUEST attempt=1
	// 2->1 REPLY attempt=1
	// 3->1 REPLY attempt=1
	// 1 held fence=1
	// 1 idle
	// 1 held fence=2
}
