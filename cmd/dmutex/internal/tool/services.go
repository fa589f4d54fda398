package tool

import (
	"context"
	"errors"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/client"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/transport"
)

// NATS is how commands reach NATS. It is nil in a build without -tags nats: the
// client and the server cost 45 MB to download and half a minute to compile, and
// most commands do not need them.
var NATS *Broker

// A Broker connects to servers, and runs one.
type Broker struct {
	// Connect makes a link over one of the servers of a URL. The name is for the operators of
	// the server. stop closes the link, and the connection below it.
	Connect func(url, name string, self dmutex.NodeID, prefix string) (link transport.DynamicLink, stop func(), err error)
	// Open opens a record in a bucket. stop closes the connection.
	Open func(StoreConfig) (s store.Store, stop func(), err error)
	// Join opens a member of the group of this name, which also serves clients over NATS. stop
	// closes the connection.
	Join func(ctx context.Context, url, group string, security TLS, cfg node.Config) (n *node.Node, stop func(), err error)
	// Visit says how a client reaches the members of the group of this name. stop closes the
	// connection.
	Visit func(url, group, name string, security TLS) (c client.Config, stop func(), err error)
	// Serve runs a server in this process: at the URL of one that was stopped, or, if
	// that is empty, at a free port of the loopback interface.
	Serve func(at string) (url string, stop func(), err error)
}

// StoreConfig says where a record is.
type StoreConfig struct {
	URL, Name      string
	Bucket, Record string
	TLS
}

// ErrNoNATS refuses NATS in a build without it.
var ErrNoNATS = errors.New("this dmutex was built without NATS: add -tags nats, as in go run -tags nats ./cmd/dmutex or go install -tags nats ./cmd/dmutex")

// PostgreSQL opens a record in the database of a URL, and is nil in a build without
// -tags postgres. stop closes the connections.
var PostgreSQL func(url, record string) (s store.Store, stop func(), err error)

// ErrNoPostgreSQL refuses PostgreSQL in a build without it.
var ErrNoPostgreSQL = errors.New("this dmutex was built without PostgreSQL: add -tags postgres, as in go install -tags postgres ./cmd/dmutex")
