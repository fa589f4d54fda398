package node_test

import (
	"context"
	"fmt"
	"log"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/transport/memlink"
)

// Two candidates lead one after the other, and a third node observes.
func ExampleElection() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	members := []dmutex.NodeID{1, 2, 3}
	var nodes []*node.Node
	for _, id := range members {
		n, err := node.OpenStrict(ctx, id, members, network.Link(id), node.Config{})
		check(err)
		defer n.Close(ctx)
		nodes = append(nodes, n)
	}

	told := make(chan string)
	go func() {
		last := uint64(0)
		for leader, epoch := range nodes[2].Election("scheduler").Observe(ctx) {
			if leader == dmutex.None {
				told <- "nobody leads"
			} else {
				told <- fmt.Sprintf("node %d leads, in a higher epoch: %v", leader, epoch > last)
				last = epoch
			}
		}
	}()

	for _, n := range nodes[:2] {
		// A permanent candidate calls Campaign in a loop until ctx ends.
		err := n.Election("scheduler").Campaign(ctx, func(ctx context.Context, epoch uint64) error {
			fmt.Println(<-told)
			n.Election("scheduler").Resign()
			<-ctx.Done()
			fmt.Println("node", n.Self(), "stops:", context.Cause(ctx))
			return nil
		})
		check(err)
		fmt.Println(<-told)
	}
	// Output:
	// node 1 leads, in a higher epoch: true
	// node 1 stops: node: lock "election/scheduler": leader resigned
	// nobody leads
	// node 2 leads, in a higher epoch: true
	// node 2 stops: node: lock "election/scheduler": leader resigned
	// nobody leads
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
