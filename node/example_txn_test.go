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

// Two nodes take two locks, each in its own order. The cycle is found, and the
// younger transaction gives way.
func ExampleTxn() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	members := []dmutex.NodeID{1, 2}
	var txns []*node.Txn
	for _, id := range members {
		n, err := node.OpenStrict(ctx, id, members, network.Link(id), node.Config{
			Deadlock: 10 * time.Millisecond,
		})
		check(err)
		defer n.Close(ctx)
		txns = append(txns, n.Txn())
	}
	_, err = txns[0].Acquire(ctx, "fork")
	check(err)
	_, err = txns[1].Acquire(ctx, "knife")
	check(err)

	done := make(chan error)
	for txn, next := range map[*node.Txn]string{txns[0]: "knife", txns[1]: "fork"} {
		go func() {
			_, err := txn.Acquire(ctx, next)
			if errors.Is(err, node.ErrDeadlock) {
				fmt.Println("there is a deadlock")
			} else {
				check(err)
				fmt.Println("one has both")
			}
			done <- txn.Release() // so that the other can go on
		}()
	}
	check(<-done)
	check(<-done)
	// Output:
	// there is a deadlock
	// one has both
}

// AcquireAll takes the locks in the order of their names, whatever the order of its arguments, so
// such calls never wait in a cycle.
func ExampleNode_AcquireAll() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	n, err := node.OpenStrict(ctx, 1, []dmutex.NodeID{1}, network.Link(1), node.Config{})
	check(err)
	defer n.Close(ctx)
	txn, err := n.AcquireAll(ctx, "knife", "fork")
	check(err)
	fmt.Println(txn.Held("fork").Err(), txn.Held("knife").Err())
	check(txn.Release())
	// Output: <nil> <nil>
}
