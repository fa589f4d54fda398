package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A long job at one node gives way to an urgent one at another.
func ExampleMutex_Ask() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	members := []dmutex.NodeID{1, 2}
	var nodes []*node.Node
	for _, id := range members {
		n, err := node.OpenStrict(ctx, id, members, network.Link(id), node.Config{})
		check(err)
		defer n.Close(ctx)
		nodes = append(nodes, n)
	}

	long, err := nodes[0].Mutex("table").Acquire(ctx)
	check(err)
	go func() {
		defer long.Release()
		for {
			select {
			case <-node.Asked(long):
				fmt.Println("the long job makes room")
				return
			case <-time.After(time.Millisecond): // one step of the work
			}
		}
	}()

	table := nodes[1].Mutex("table")
	urgent, err := table.TryAcquire(ctx)
	if errors.Is(err, node.ErrBusy) {
		check(table.Ask(ctx))
		urgent, err = table.Acquire(ctx)
	}
	check(err)
	fmt.Println("the urgent job has the higher fence:", urgent.Fence() > long.Fence())
	check(urgent.Release())
	// Output:
	// the long job makes room
	// the urgent job has the higher fence: true
}
