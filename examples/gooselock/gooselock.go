// Package gooselock lets one process of several run the migrations of goose, on any database.
//
//	p, err := goose.NewProvider(dialect, db, migrations, goose.WithLocker(gooselock.New(n.Mutex("migrations"))))
//
// It uses no session and no table of the database: poolers do not matter, and a process that waits
// polls nothing. If the lock is lost while a migration runs, Unlock says so, and the error of Up has it.
package gooselock

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"

	dlock "github.com/dmutex/dmutex/lock"
)

// New returns a Locker for the migrations of one database.
func New(m dlock.Mutex) lock.Locker { return &locker{mutex: m} }

type locker struct {
	mutex dlock.Mutex
	held  dlock.Held // from a Lock to the Unlock of the same provider, which calls them one at a time
}

// Lock implements [lock.Locker].
func (l *locker) Lock(ctx context.Context, _ *sql.DB) (err error) {
	l.held, err = l.mutex.Acquire(ctx)
	return err
}

// Unlock implements [lock.Locker].
func (l *locker) Unlock(context.Context, *sql.DB) error { return l.held.Release() }
