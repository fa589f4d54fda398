// Package postgres links PostgreSQL into the tool.
package postgres

import (
	"context"
	"database/sql"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
)

const patience = 10 * time.Second // until the database must have answered once

// Open is what a build with PostgreSQL has as [tool.PostgreSQL].
func Open(url, record string) (s store.Store, stop func(), err error) {
	db, err := sql.Open("pgx", url)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if s, err = sqlstore.Open(ctx, db, sqlstore.PostgreSQL, record); err != nil {
		db.Close()
		return nil, nil, err
	}
	return s, func() { db.Close() }, nil
}
