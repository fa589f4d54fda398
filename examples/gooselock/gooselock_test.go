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
	"github.com/dmutex/dmutex/node"
)

func provider(t *testing.T, file string, n *node.Node, migrations ...*goose.Migration) *goose.Provider {
	db, err := sql.Open("sqlite3", "file:"+file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	files := fstest.MapFS{"00001_bank.sql": {Data: []byte("-- +goose Up\nCREATE TABLE accounts (name TEXT);\nINSERT INTO accounts VALUES ('alice');\n")}}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithLocker(gooselock.New(n.Mutex("migrations"))), goose.WithGoMigrations(migrations...))
	require.NoError(t, err)
	return p
}

// Three processes migrate at once: one does it, and the others find it done.
func TestUp(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bank.db")
	var all sync.WaitGroup
	applied := make(chan int, 3)
	for _, n := range three.Open(t) {
		p := provider(t, file, n)
		all.Go(func() {
			results, err := p.Up(t.Context())
			require.NoError(t, err)
			applied <- len(results)
		})
	}
	all.Wait()
	require.Equal(t, 1, <-applied+<-applied+<-applied)
}

// The error of a migration says that its lock was lost.
func TestLost(t *testing.T) {
	n := three.Open(t)[0]
	p := provider(t, filepath.Join(t.TempDir(), "bank.db"), n, goose.NewGoMigration(2, &goose.GoFunc{RunDB: func(context.Context, *sql.DB) error {
		three.Close(n)
		return nil
	}}, nil))
	_, err := p.Up(t.Context())
	require.ErrorIs(t, err, lock.ErrLost)
}
