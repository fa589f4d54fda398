package memlink_test

import (
	"fmt"
	"log"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/memlink"
)

func Example() {
	network, err := memlink.New(memlink.Config{})
	if err != nil {
		log.Fatal(err)
	}
	one, two := network.Link(1), network.Link(2)

	heard := make(chan string)
	err = one.Open(transport.Host{Deliver: func(from dmutex.NodeID, frames [][]byte) {
		for _, frame := range frames {
			heard <- fmt.Sprintf("node %d says %s", from, frame)
		}
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := two.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}); err != nil {
		log.Fatal(err)
	}

	network.Cut(2, 1)
	two.Send(1, []byte("can you hear me?")) // lost
	network.Heal()
	two.Send(1, []byte("hello"))
	fmt.Println(<-heard)

	two.Close()
	one.Close()
	// Output: node 2 says hello
}
