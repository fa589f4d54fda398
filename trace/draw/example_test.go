package draw_test

import (
	"fmt"
	"log"

	"github.com/dmutex/dmutex/dmutextest"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/trace/draw"
)

// One of two nodes takes the lock, drawn as text that Mermaid turns into a picture. The
// traces are those of a script; trace.Read reads what real nodes have recorded.
func Example() {
	traces, err := dmutextest.TraceScript(ricart.New, "group 1 2\n\nrequest 1\ndeliver all\nrelease 1")
	if err != nil {
		log.Fatal(err)
	}
	drawing, err := draw.New(traces, draw.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", drawing.Mermaid())
	// Output:
	// sequenceDiagram
	//     participant N1
	//     participant N2
	//     Note over N1: request
	//     N1->>N2: REQUEST attempt=1
	//     N2->>N1: REPLY attempt=1
	//     activate N1
	//     Note over N1: enters, fence 1
	//     deactivate N1
}
