//go:build unix

package faults

import (
	"context"
	"database/sql"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/etcdstore"
	"github.com/dmutex/dmutex/store/filestore"
	"github.com/dmutex/dmutex/store/natsstore"
	"github.com/dmutex/dmutex/store/redisstore"
	"github.com/dmutex/dmutex/store/sqlstore"
)

// bucket is where JetStream keeps the records.
const bucket = "groups"

// stores returns a function that opens the store of a group: in a file, a database, etcd, Redis or JetStream.
func (t *task) stores(nc *nats.Conn) func(group string) store.Store {
	ctx := context.Background()
	opened := func(s store.Store, err error) store.Store {
		must(err)
		return s
	}
	switch where := t.Where; t.Store {
	case "file": // that is all it is: it proves no deaths
		return func(group string) store.Store {
			return struct{ store.Store }{opened(filestore.Open(filepath.Join(where, group)))}
		}
	case "prover":
		return func(group string) store.Store { return opened(filestore.Open(filepath.Join(where, group))) }
	case "postgres":
		db, err := sql.Open("pgx", where)
		must(err)
		db.SetMaxOpenConns(len(t.Algorithms)) // the server allows a hundred connections
		return func(group string) store.Store { return opened(sqlstore.Open(ctx, db, sqlstore.PostgreSQL, group)) }
	case "etcd":
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{where}, Logger: zap.NewNop()})
		must(err)
		return func(group string) store.Store { return opened(etcdstore.Open(client, group)) }
	case "mariadb":
		cfg := mysql.NewConfig()
		cfg.Net, cfg.Addr, cfg.User, cfg.DBName, cfg.Logger = "unix", where, "root", "mysql", &mysql.NopLogger{}
		connector, err := mysql.NewConnector(cfg)
		must(err)
		db := sql.OpenDB(connector)
		db.SetMaxOpenConns(len(t.Algorithms))
		return func(group string) store.Store { return opened(sqlstore.Open(ctx, db, sqlstore.MySQL, group)) }
	case "redis":
		client := redis.NewClient(&redis.Options{Addr: where, MaxRetries: -1, ContextTimeoutEnabled: true})
		return func(group string) store.Store {
			return opened(redisstore.Open(ctx, client, redisstore.Config{Servers: 1, Lease: t.Lease}, group))
		}
	default:
		return func(group string) store.Store {
			js, err := jetstream.New(nc)
			must(err)
			return opened(natsstore.Open(ctx, js, bucket, strings.ReplaceAll(group, ".", "_"))) // a key has no dots
		}
	}
}
