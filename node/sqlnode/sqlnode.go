// Package sqlnode makes a process a member of a group whose record is a row of an SQL database.
// The members talk over TCP.
//
//	n, err := sqlnode.Open(ctx, db, sqlstore.PostgreSQL, "invoices",
//		tcplink.Config{Listen: ":7000", Advertise: net.JoinHostPort(ip, "7000"), TLS: security}, node.Config{})
//
// On one machine, tcplink.Config{Listen: "127.0.0.1:0"} is enough.
package sqlnode

import (
	"cmp"
	"context"
	"database/sql"

	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/transport/tcplink"
)

// Open opens a node of the group of that name. [sqlstore.Open] makes the table if it is
// missing, or says which privileges are. The link says where this process listens, and how the
// others reach it; it has no Self and no Peers, because the record has them. Where Config.Group
// is empty, it is the name. See [node.Open] for the rest.
//
// Give the database to nothing else: while all its connections are busy, no lease is renewed.
func Open(ctx context.Context, db *sql.DB, dialect sqlstore.Dialect, group string, link tcplink.Config, cfg node.Config) (*node.Node, error) {
	record, err := sqlstore.Open(ctx, db, dialect, group)
	if err != nil {
		return nil, err
	}
	l, err := tcplink.New(link)
	if err != nil {
		return nil, err
	}
	cfg.Group = cmp.Or(cfg.Group, group)
	return node.Open(ctx, record, l, cfg)
}
