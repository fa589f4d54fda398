package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/lock"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport/memlink"
)

// With a store there is no list of members: the record gives each process a number.
// In production the store is a file, a database or a bucket; see package store.
func ExampleOpen_store() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	var record store.Memory
	join := func() *node.Node {
		n, err := node.Open(ctx, &record, network.Link(dmutex.None), node.Config{Lease: time.Second})
		check(err)
		return n
	}

	first := join()
	held, err := first.Mutex("invoices/42").Acquire(ctx) // waits for one lease, because the record is new
	check(err)
	fmt.Println("node", first.Self(), "holds the lock")

	second := join()
	granted := make(chan lock.Held)
	go func() {
		held, err := second.Mutex("invoices/42").Acquire(ctx)
		check(err)
		granted <- held
	}()
	check(second.Ready(ctx))
	check(first.Close(ctx)) // the others go on without it
	fmt.Println("node 1 lost it:", errors.Is(held.Err(), node.ErrLost))

	next := <-granted
	fmt.Println("node", second.Self(), "holds it, with a higher fence:", next.Fence() > held.Fence())
	check(next.Release())
	check(second.Close(ctx))
	// Output:
	// node 1 holds the lock
	// node 1 lost it: true
	// node 2 holds it, with a higher fence: true
}
