package tcplink_test

import (
	"fmt"
	"log"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// In production each node is a process, and all have the same address book. Here both
// nodes are in one process and take free ports.
func Example() {
	one, err := tcplink.New(tcplink.Config{Self: 1, Listen: "127.0.0.1:0"})
	if err != nil {
		log.Fatal(err)
	}
	two, err := tcplink.New(tcplink.Config{
		Self:   2,
		Listen: "127.0.0.1:0",
		Peers:  map[dmutex.NodeID]string{1: one.Addr().String()},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := one.SetPeer(2, two.Addr().String()); err != nil {
		log.Fatal(err)
	}

	done := make(chan struct{})
	err = one.Open(transport.Host{Deliver: func(from dmutex.NodeID, frames [][]byte) {
		for _, frame := range frames {
			fmt.Printf("node %d says %s\n", from, frame)
		}
		close(done)
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := two.Open(transport.Host{Deliver: func(dmutex.NodeID, [][]byte) {}}); err != nil {
		log.Fatal(err)
	}
	if err := two.Send(1, []byte("hello")); err != nil {
		log.Fatal(err)
	}
	<-done
	two.Close()
	one.Close()
	// Output: node 2 says hello
}
