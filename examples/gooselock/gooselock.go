// Package gooselock lets one process of several run the migrations of goose, on any database.
//
//	locker := gooselock.New(n.Mutex("migrations"))
//	p, err := goose.NewProvider(dialect, db, migrations, goose.WithLocker(locker))
//
// It uses no session and no table of the database: poolers do not matter, and a process that waits
// polls nothing. If the lock is lost while a migration runs, Unlock says so, and the error of Up has it.
//
// goose passes nothing from the lock to a migration. So one in Go asks for the handle, locker.Held(),
// which has the fence of the grant and a context that ends with it.
package gooselock

import (
	"context"
	"database/sql"

	"github.com/pressly/goose/v3/lock"

	dlock "github.com/dmutex/dmutex/lock"
)

// New returns a Locker for the migrations of one database.
func New(m dlock.Mutex) *Locker { return &Locker{mutex: m} }

var _ lock.Locker = (*Locker)(nil)

// A Locker is a [lock.Locker].
type Locker struct {
	mutex dlock.Mutex
	held  dlock.Held // from a Lock to the Unlock of the same provider, which calls them one at a time
}

// Lock implements [lock.Locker].
func (l *Locker) Lock(ctx context.Context, _ *sql.DB) (err error) {
	l.held, err = l.mutex.Acquire(ctx)
	return err
}

// Held returns the handle of the lock, in a migration.
func (l *Locker) Held() dlock.Held { return l.held }

// Unlock implements [lock.Locker].
func (l *Locker) Unlock(context.Context, *sql.DB) error { return l.held.Release() }
