package transport_test

import (
	"fmt"
	"log"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
)

// A message on the wire is its lock's name and a few bytes. The link tells the receiver
// who sent it.
func Example() {
	request := dmutex.Message{Kind: dmutex.Request, From: 2, To: 1, Attempt: 7}
	wire := transport.AppendMessage(nil, "invoices/42", request)
	fmt.Println(len(wire), "bytes")

	var decoder transport.Decoder
	lock, m, err := decoder.Decode(wire)
	if err != nil {
		log.Fatal(err)
	}
	m.From, m.To = 2, 1
	fmt.Printf("%s: %v\n", lock, m)

	_, _, err = decoder.Decode(wire[:5])
	fmt.Println(err)
	// Output:
	// 16 bytes
	// invoices/42: 2->1 REQUEST attempt=7
	// dmutex: peer's mistake: the message ends too early
}
