// Package natsnode makes a process a member of a group over a NATS connection that it already
// has. JetStream keeps the record of the group, and core NATS carries the messages.
//
//	nc, err := nats.Connect(url,
//		nats.MaxReconnects(-1),                    // else nats.go gives up after two minutes
//		nats.ReconnectWait(250*time.Millisecond),  // else 2 s after each attempt
//		nats.PingInterval(lease/8), nats.MaxPingsOutstanding(2)) // else it takes four minutes to leave a server that hangs
//	...
//	n, err := natsnode.Open(ctx, nc, "invoices", node.Config{Lease: lease})
//
// While a connection is down, locks wait, and a lease that ends costs the locks that are held. nats.go
// waits after each attempt to reconnect: with its 2 s an outage of 3.0 s costs 4.1 s, and with
// 250 ms 3.2 s. It notices a server that hangs, and goes to another one, only by its pings. If these would
// take longer than half a lease, Open logs a warning.
//
// # Permissions
//
// For the group invoices, publish to
//
//	dmutex.invoices.>
//	$KV.dmutex.invoices
//	$KV.dmutex.invoices.read
//	$JS.API.STREAM.INFO.KV_dmutex
//	$JS.API.STREAM.MSG.GET.KV_dmutex
//
// and subscribe to dmutex.invoices.> and _INBOX.>. If the bucket dmutex is to be made by the
// first process, also publish to $JS.API.INFO and $JS.API.STREAM.CREATE.KV_dmutex. See packages
// natslink and natsstore for what these permissions, and the settings of the servers, protect.
package natsnode

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dmutex/dmutex/internal/leases"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/transport/natslink"
)

// bucket has the records of all groups, and their subjects begin with its name.
const bucket = "dmutex"

// Open opens a node of the group of that name, which has letters, digits, and the characters
// - _ =. Its record is under that name in the bucket dmutex. If the bucket is missing, Open
// makes it, as [natsstore.Open] describes; if it could lose the record, Open says which setting
// is wrong. Where Config.Group is empty, it is the name. See [node.Open] for the rest.
func Open(ctx context.Context, nc *nats.Conn, group string, cfg node.Config) (*node.Node, error) {
	if nc == nil {
		_, err := natslink.New(nc, natslink.Config{}) // refuses it
		return nil, err
	}
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	record, err := natsstore.Open(ctx, js, bucket, group)
	if err != nil {
		return nil, err
	}
	link, err := natslink.New(nc, natslink.Config{Prefix: bucket + "." + group})
	if err != nil {
		return nil, err
	}
	cfg.Group = cmp.Or(cfg.Group, group)
	if cfg.Logger != nil {
		warn(cfg.Logger, nc.Opts, cmp.Or(cfg.Lease, leases.Default))
	}
	return node.Open(ctx, record, link, cfg)
}

// warn says it if nats.go would stay with a server that hangs for more than half a lease: until one ping more than
// may be outstanding is due. Without an interval it never pings.
func warn(log *slog.Logger, o nats.Options, lease time.Duration) {
	silent := o.PingInterval * time.Duration(o.MaxPingsOut+1)
	if o.PingInterval > 0 && silent <= lease/2 {
		return
	}
	log.Warn("a NATS server that hangs is left too late: connect with nats.PingInterval(lease/8), nats.MaxPingsOutstanding(2)", "silent", silent)
}
