package channel_test

import (
	"context"
	"fmt"
	"log"
	"sync"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/channel"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Three machines of package ricart take turns, over a network that loses every tenth
// frame.
func Example() {
	network, err := memlink.New(memlink.Config{Loss: 0.1})
	if err != nil {
		log.Fatal(err)
	}
	members := []dmutex.NodeID{1, 2, 3}
	var machines []dmutex.Machine
	var ends []*channel.Channels
	granted := make(chan uint64)
	for i, self := range members {
		machine, err := ricart.New(dmutex.Start{Self: self, Members: members})
		if err != nil {
			log.Fatal(err)
		}
		end, err := channel.Open(self, channel.Config{
			Peers: append(members[:i:i], members[i+1:]...),
			Link:  network.Link(self),
			Receive: func(_ string, m dmutex.Message) ([]dmutex.Message, error) {
				before := machine.Phase()
				out, err := machine.Handle(m)
				if before == dmutex.Waiting && machine.Phase() == dmutex.Held {
					go func(fence uint64) { granted <- fence }(machine.Fence())
				}
				return out, err
			},
			Lost: func(dmutex.NodeID, error) {}, // all stay until the end
		})
		if err != nil {
			log.Fatal(err)
		}
		machines, ends = append(machines, machine), append(ends, end)
	}
	for i, self := range members {
		if err := ends[i].Do("x", machines[i].Request); err != nil {
			log.Fatal(err)
		}
		fmt.Println("node", self, "holds x with fence", <-granted)
		if err := ends[i].Do("x", machines[i].Release); err != nil {
			log.Fatal(err)
		}
	}
	var closing sync.WaitGroup
	for _, end := range ends { // together: each waits until the others have its farewell
		closing.Go(func() {
			if err := end.Close(context.Background()); err != nil {
				log.Print(err)
			}
		})
	}
	closing.Wait()
	// Output:
	// node 1 holds x with fence 1
	// node 2 holds x with fence 2
	// node 3 holds x with fence 3
}
