package gooselock_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/examples/gooselock"
	"github.com/dmutex/dmutex/examples/internal/three"
	"github.com/dmutex/dmutex/lock"
)

func provider(t *testing.T, file string, locker *gooselock.Locker, migrations ...*goose.Migration) *goose.Provider {
	db, err := sql.Open("sqlite3", "file:"+file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	files := fstest.MapFS{"00001_bank.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (name TEXT);\nINSERT INTO accounts VALUES ('alice');\n")}}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(locker), goose.WithGoMigrations(migrations...))
	require.NoError(t, err)
	return p
}

// Three processes migrate at once: one does it, and the others find it done.
func TestUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bank.db")
	var all sync.WaitGroup
	applied := make(chan int, 3)
	for _, n := range three.Open(t) {
		p := provider(t, file, gooselock.New(n.Mutex("migrations")))
		all.Go(func() {
			results, err := p.Up(t.Context())
			require.NoError(t, err)
			applied <- len(results)
		})
	}
	all.Wait()
	require.Equal(t, 1, <-applied+<-applied+<-applied)
}

// A migration has the fence of its lock, and the error says that the lock was lost.
func TestLost(t *testing.T) {
	n := three.Open(t)[0]
	locker := gooselock.New(n.Mutex("migrations"))
	p := provider(t, filepath.Join(t.TempDir(), "bank.db"), locker, goose.NewGoMigration(2, &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error {
		require.Positive(t, locker.Held().Fence())
		three.Close(n)
		return nil
	}}, nil))
	_, err := p.Up(t.Context())
	require.ErrorIs(t, err, lock.ErrLost)
}
