// Package postgres links PostgreSQL into the tool.
package postgres

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
)

// Open opens postgres://USER@HOST/DATABASE, where rows are the records of locks, and of the group whose name follows a #
// or is dmutex. It is what a build with PostgreSQL has in [tool.Bases].
func Open(text string, _ time.Duration) (*tool.Base, error) {
	text, group, _ := strings.Cut(text, "#")
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1) // for all permits, since a server has few
	row := func(name string) store.Store {
		return tool.LateStore{Late: tool.NewLate(outage, func(ctx context.Context) (store.Store, error) {
			s, err := sqlstore.Open(ctx, db, sqlstore.PostgreSQL, name)
			return frugal{s}, err
		})}
	}
	b := &tool.Base{Lock: func(name string) store.Store { return row(tool.RecordName(name)) }, Name: cmp.Or(group, "dmutex"), Stop: func() { db.Close() }}
	b.Group = row(b.Name)
	return b, nil
}

// outage reports whether an error may pass, such as that of a server that starts or has too many clients.
func outage(err error) bool {
	if refusal, is := errors.AsType[*pgconn.PgError](err); is {
		return slices.Contains(passing, refusal.Code[:2])
	}
	return tool.Outage(err) || pgconn.SafeToRetry(err) || errors.Is(err, driver.ErrBadConn)
}

// passing are the classes of errors of connections, of a standby that may be promoted, of transactions, of resources, of
// a state that is not the right one, of operators, and of the system.
var passing = []string{"08", "25", "40", "53", "55", "57", "58", "XX"}

// A frugal store keeps its connection when a caller gives up a Load: the driver would close it, and a server that
// has too many clients might give its place to another. The deadline of the caller still counts.
type frugal struct{ store.Store }

// Load implements [store.Store].
func (f frugal) Load(ctx context.Context) ([]byte, store.Revision, error) {
	type answer struct {
		value []byte
		rev   store.Revision
		err   error
	}
	answers := make(chan answer, 1)
	patient, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if end, ok := ctx.Deadline(); ok {
		patient, cancel = context.WithDeadline(patient, end)
	}
	go func() {
		defer cancel()
		value, rev, err := f.Store.Load(patient)
		answers <- answer{value, rev, err}
	}()
	select {
	case a := <-answers:
		return a.value, a.rev, a.err
	case <-ctx.Done():
		return nil, "", ctx.Err()
	}
}
