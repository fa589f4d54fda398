//go:build unix

package faults

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/etcdstore"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/store/redisstore"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/transport"
	"github.com/dmutex/dmutex/transport/linktest"
)

// A cut is what a process with leases cannot reach. The group may change it at any time.
type cut struct {
	Store bool            // the store does not answer
	Link  bool            // no frame leaves or arrives
	Deaf  []dmutex.NodeID // no frame of these processes arrives
}

// openStores opens the store of each group.
func (w *worker) openStores(nc *nats.Conn) {
	w.cut.Store(&cut{})
	open := w.stores(nc)
	for _, name := range w.Algorithms {
		s, err := open(name)
		must(err)
		w.gates[name] = &gate{store: s, cut: &w.cut}
	}
}

// stores returns a function that opens the store of a group: in a file, a database, etcd, Redis or JetStream.
func (t *task) stores(nc *nats.Conn) func(group string) (store.Store, error) {
	ctx := context.Background()
	switch kind, where, _ := strings.Cut(t.Store, ":"); kind {
	case "file", "prover":
		return func(group string) (store.Store, error) { return filestore.Open(filepath.Join(where, group)) }
	case "postgres":
		db, err := sql.Open("pgx", where)
		must(err)
		db.SetMaxOpenConns(len(t.Algorithms)) // the server allows a hundred connections
		return func(group string) (store.Store, error) { return sqlstore.Open(ctx, db, sqlstore.PostgreSQL, group) }
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{where}, Logger: zap.NewNop()})
		must(err)
		return func(group string) (store.Store, error) { return etcdstore.Open(client, group) }
	case "mariadb":
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr, cfg.User, cfg.DBName, cfg.Logger = "unix", where, "root", "mysql", &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		must(err)
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(len(t.Algorithms))
		return func(group string) (store.Store, error) { return sqlstore.Open(ctx, db, sqlstore.MySQL, group) }
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: where, MaxRetries: -1, ContextTimeoutEnabled: true})
		return func(group string) (store.Store, error) {
			return redisstore.Open(ctx, client, redisstore.Config{Servers: 1, Lease: t.Lease}, group)
		}
	default:
		js, err := jetstream.New(nc)
		must(err)
		return func(group string) (store.Store, error) { return natsstore.Open(ctx, js, bucket, group) }
	}
}

// bucket is where JetStream keeps the records.
const bucket = "groups"

// A gate is the way to a store. It counts the operations.
type gate struct {
	store store.Store
	cut   *atomic.Pointer[cut]
	asked atomic.Uint64
}

// way returns the store of a group.
func (w *worker) way(name string) store.Store {
	g := w.gates[name]
	if strings.HasPrefix(w.Store, "prover:") {
		return proving{g, g.store.(store.Prover)}
	}
	return g
}

// A proving gate also passes on what the store proves.
type proving struct {
	*gate
	prover
}

type prover interface {
	Live(ctx context.Context) (store.Life, error)
	Over(ctx context.Context, name string) error
	Living(ctx context.Context) (names []string, err error)
}

var errUnanswered = errors.New("the answer is lost")

func (g *gate) Load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	if err := g.pass(ctx); err != nil {
		return nil, "", err
	}
	value, rev, err = g.store.Load(ctx)
	if g.cut.Load().Store {
		return nil, "", errUnanswered
	}
	return value, rev, err
}

func (g *gate) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	if err := g.pass(ctx); err != nil {
		return "", err
	}
	rev, err := g.store.Swap(ctx, value, rev)
	if g.cut.Load().Store {
		return "", errUnanswered
	}
	return rev, err
}

func (g *gate) pass(ctx context.Context) error {
	if g.asked.Add(1); g.cut.Load().Store {
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// An ear is a link that may be cut, or deaf to some processes: each frame begins with the
// number of the process that sends it.
type ear struct {
	transport.DynamicLink
	self dmutex.NodeID
	cut  *atomic.Pointer[cut]
}

func (e *ear) MaxFrame() int { return e.DynamicLink.MaxFrame() - binary.MaxVarintLen64 }

func (e *ear) Send(to dmutex.NodeID, frame []byte) error {
	if e.cut.Load().Link {
		return nil
	}
	return e.DynamicLink.Send(to, append(binary.AppendUvarint(nil, uint64(e.self)), frame...))
}

func (e *ear) Open(host transport.Host) error {
	deliver := host.Deliver
	host.Deliver = linktest.Each(func(from dmutex.NodeID, frame []byte) {
		process, n := binary.Uvarint(frame)
		if c := e.cut.Load(); !c.Link && !slices.Contains(c.Deaf, dmutex.NodeID(process)) {
			deliver(from, [][]byte{frame[max(n, 0):]}) // of a stranger there may be none
		}
	})
	return e.DynamicLink.Open(host)
}
