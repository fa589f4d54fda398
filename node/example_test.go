package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/ricart"
	"github.com/dmutex/dmutex/transport/memlink"
)

// A group of three in one process. In production each process opens one node, with a link such as
// one of tcplink, and all pass the same members.
func ExampleOpen() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	members := []dmutex.NodeID{1, 2, 3}
	var nodes []*node.Node
	for _, self := range members {
		n, err := node.OpenStrict(ctx, self, members, network.Link(self), node.Config{Algorithm: ricart.New})
		check(err)
		nodes = append(nodes, n)
	}

	for _, n := range nodes {
		check(n.Ready(ctx)) // Acquire waits for that, too
		fmt.Println("node", n.Self(), "takes part")
	}

	// Close first lets the others finish what they need the node for.
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, n := range nodes {
		check(n.Close(ctx))
	}
	// Output:
	// node 1 takes part
	// node 2 takes part
	// node 3 takes part
}

// The lock of a name is held by one node at a time.
func ExampleMutex_Acquire() {
	ctx := context.Background()
	one, two := pair()
	defer one.Close(ctx)
	defer two.Close(ctx)

	first, err := one.Mutex("invoices/42").Acquire(ctx)
	check(err)
	fmt.Println("node 1 holds the lock")

	// The context bounds the wait.
	impatient, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err = two.Mutex("invoices/42").Acquire(impatient)
	fmt.Println("node 2 gave up:", errors.Is(err, context.DeadlineExceeded))

	check(first.Release())
	second, err := two.Mutex("invoices/42").Acquire(ctx)
	check(err)
	fmt.Println("node 2 holds the lock, with a higher fence:", second.Fence() > first.Fence())
	check(second.Release())
	// Output:
	// node 1 holds the lock
	// node 2 gave up: true
	// node 2 holds the lock, with a higher fence: true
}

// A node skips a job that another node already does.
func ExampleMutex_TryAcquire() {
	ctx := context.Background()
	one, two := pair()
	defer one.Close(ctx)
	defer two.Close(ctx)

	held, err := one.Mutex("nightly report").TryAcquire(ctx)
	check(err)
	fmt.Println("node 1 writes the report")

	_, err = two.Mutex("nightly report").TryAcquire(ctx)
	if errors.Is(err, node.ErrBusy) {
		fmt.Println("node 2 need not write it")
	} else {
		check(err)
	}
	check(held.Release())
	// Output:
	// node 1 writes the report
	// node 2 need not write it
}

// Do holds the lock while a function runs, and releases it even if the function fails.
func ExampleMutex_Do() {
	ctx := context.Background()
	one, two := pair()
	defer one.Close(ctx)
	defer two.Close(ctx)

	highest := uint64(0) // the table refuses writes with a lower fence
	for _, n := range []*node.Node{one, two} {
		err := n.Mutex("table").Do(ctx, func(_ context.Context, fence uint64) error {
			if fence < highest {
				return errors.New("the lock was lost before this write")
			}
			highest = fence
			fmt.Println("node", n.Self(), "writes")
			return errors.New("the table is full")
		})
		fmt.Println(err)
	}
	// Output:
	// node 1 writes
	// the table is full
	// node 2 writes
	// the table is full
}

// The work stops when the lock is no longer held, whatever the reason.
func ExampleHeld() {
	ctx := context.Background()
	one, two := pair()
	defer one.Close(ctx)
	defer two.Close(ctx)

	held, err := one.Mutex("invoices/42").Acquire(ctx)
	check(err)
	fmt.Println("held:", held.Err() == nil)

	stopped := make(chan error)
	go func() { // pass held.Fence() along with every write
		ctx := held.Context()
		<-ctx.Done()
		stopped <- context.Cause(ctx)
	}()

	check(held.Release())
	fmt.Println("the work has stopped:", <-stopped)
	fmt.Println(held.Err())
	// Output:
	// held: true
	// the work has stopped: node: lock was released
	// node: lock was released
}

// pair opens a group of two nodes.
func pair() (one, two *node.Node) {
	network, err := memlink.New(memlink.Config{})
	check(err)
	open := func(self dmutex.NodeID) *node.Node {
		n, err := node.OpenStrict(context.Background(), self, []dmutex.NodeID{1, 2}, network.Link(self), node.Config{
			Algorithm: ricart.New,
		})
		check(err)
		return n
	}
	return open(1), open(2)
}
