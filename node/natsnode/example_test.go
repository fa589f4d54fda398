package natsnode_test

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/natsnode"
)

// A service takes a lock over the NATS connection that it has.
func Example() {
	charge := func(context.Context, uint64) error { return nil }
	_ = func(ctx context.Context, nc *nats.Conn) error {
		n, err := natsnode.Open(ctx, nc, "billing", node.Config{}) // join the group
		if err != nil {
			return err
		}
		return n.Mutex("invoices/42").Do(ctx, func(ctx context.Context, fence uint64) error {
			return charge(ctx, fence) // ctx ends, with the reason, when the lock is lost
		})
	}
}
