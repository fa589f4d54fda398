package natslink_test

import (
	"log"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/natslink"
)

// The connection is the application's, with whatever options and credentials it
// has. (This example needs a server, so it is only compiled.)
func Example() {
	nc, err := nats.Connect(nats.DefaultURL, nats.MaxReconnects(-1))
	if err != nil {
		log.Fatal(err)
	}
	defer nc.Close()

	link, err := natslink.New(nc, natslink.Config{Self: 3, Prefix: "locks.billing"})
	if err != nil {
		log.Fatal(err)
	}
	defer link.Close()
	err = link.Open(transport.Host{Deliver: func(from dmutex.NodeID, frames [][]byte) {
		for _, frame := range frames {
			log.Printf("node %d says %s", from, frame) // it was published on locks.billing.3.<from>
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := link.Send(7, []byte("hello")); err != nil { // on locks.billing.7.3
		log.Fatal(err)
	}
}
