package node_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/central"
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
		n, err := node.Open(ctx, node.Config{
			Self: id, Members: members, Algorithm: central.New, Link: network.Link(id), Deadlock: 10 * time.Millisecond,
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

// AcquireAll takes the locks in one order, whatever the order in which they are
// named, so that nobody waits in a cycle.
func ExampleNode_AcquireAll() {
	ctx := context.Background()
	network, err := memlink.New(memlink.Config{})
	check(err)
	n, err := node.Open(ctx, node.Config{Self: 1, Members: []dmutex.NodeID{1}, Algorithm: central.New, Link: network.Link(1)})
	check(err)
	defer n.Close(ctx)
	txn, err := n.AcquireAll(ctx, "knife", "fork")
	check(err)
	fmt.Println(txn.Held("fork").Err(), txn.Held("knife").Err())
	check(txn.Release())
	// Output: <nil> <nil>
}
