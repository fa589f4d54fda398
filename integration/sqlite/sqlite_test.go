package sqlite

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
	_ "github.com/ncruces/go-sqlite3/embed"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex"
	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/node"
	"github.com/dmutex/dmutex/node/sqlnode"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/store/storetest"
	"github.com/dmutex/dmutex/transport/tcplink"
)

func openSQLite(t *testing.T, path string) *sql.DB {
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(path)+"?_pragma=busy_timeout(30000)&_pragma=synchronous(off)")
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func TestSQLite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.db")
	open := func(t *testing.T, group string) store.Store {
		s, err := sqlstore.Open(t.Context(), openSQLite(t, path), sqlstore.SQLite, group)
		require.NoError(t, err)
		return s
	}
	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, group string) store.Store { return open(t, group) })
	})
	t.Run("restored", func(t *testing.T) { restored(t, open(t, "restored"), openSQLite(t, path)) })
	t.Run("misuse", func(t *testing.T) {
		_, err := sqlstore.Open(t.Context(), nil, sqlstore.SQLite, "a")
		require.EqualError(t, err, "sqlstore: the database is nil")
		db := openSQLite(t, path)
		_, err = sqlstore.Open(t.Context(), db, sqlstore.Dialect{}, "a")
		require.EqualError(t, err, "sqlstore: choose a dialect, such as sqlstore.PostgreSQL")
		_, err = sqlstore.Open(t.Context(), db, sqlstore.SQLite, "")
		require.EqualError(t, err, `sqlstore: group "": the name must have 1 to 255 bytes`)
	})
	t.Run("dialect", func(t *testing.T) {
		db := openSQLite(t, filepath.Join(t.TempDir(), "other.db"))
		for _, dialect := range []sqlstore.Dialect{sqlstore.MySQL, sqlstore.PostgreSQL} {
			_, err := sqlstore.Open(t.Context(), db, dialect, "a")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, "the database is SQLite: open it with sqlstore.SQLite, not ")
		}
	})
	// The application has taken the only connection of the pool.
	t.Run("busy", func(t *testing.T) {
		db := openSQLite(t, path)
		s, err := sqlstore.Open(t.Context(), db, sqlstore.SQLite, "busy")
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, _, err = s.Load(ctx)
		busy := "the application uses all connections of the pool, 1: give the store a sql.DB of its own: context deadline exceeded"
		require.EqualError(t, err, `sqlstore: load group "busy": `+busy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = s.Swap(ctx, []byte("a"), "")
		require.EqualError(t, err, `sqlstore: swap group "busy": `+busy)
		require.NoError(t, conn.Close())
		_, _, err = s.Load(ctx)
		require.EqualError(t, err, `sqlstore: load group "busy": context deadline exceeded`)
	})
	// A table that exists, and must not be written.
	t.Run("read-only", func(t *testing.T) {
		db := openSQLite(t, path)
		s, err := sqlstore.Open(t.Context(), db, sqlstore.SQLite, "denied") // the name does not matter
		require.NoError(t, err)
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(t.Context(), `PRAGMA query_only = on`)
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("a"), "")
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, "attempt to write a readonly database")
	})
	// A table that is gone, as when a program that migrates the database does not know it.
	t.Run("dropped", func(t *testing.T) {
		db := openSQLite(t, filepath.Join(t.TempDir(), "other.db"))
		s, err := sqlstore.Open(t.Context(), db, sqlstore.SQLite, "dropped")
		require.NoError(t, err)
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		_, err = db.ExecContext(t.Context(), `DROP TABLE dmutex_groups`)
		require.NoError(t, err)
		storetest.Unusable(t, s, rev)
	})
}

// A row that is deleted begins again, with new revisions.
func restored(t *testing.T, s store.Store, db *sql.DB) {
	ctx := t.Context()
	lost := servers.Create(t, s)
	_, err := db.ExecContext(ctx, `DELETE FROM dmutex_groups WHERE name = 'restored'`)
	require.NoError(t, err)
	servers.Create(t, s)
	_, err = s.Swap(ctx, []byte("b"), lost)
	require.ErrorIs(t, err, store.ErrConflict)
}

// Nodes that start on an empty database make the table, and form one group.
func TestSQLNode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "groups.db")
	open := func(link tcplink.Config, cfg node.Config) (*node.Node, error) {
		return sqlnode.Open(t.Context(), openSQLite(t, path), sqlstore.SQLite, "invoices", link, cfg)
	}
	var last uint64
	for range 2 {
		n, err := open(tcplink.Config{Listen: "127.0.0.1:0"}, node.Config{Lease: time.Second})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, n.Close(context.Background())) })
		require.NoError(t, n.Mutex("x").Do(t.Context(), func(_ context.Context, fence uint64) error {
			require.Greater(t, fence, last)
			last = fence
			return nil
		}))
	}
	_, err := open(tcplink.Config{}, node.Config{})
	require.ErrorContains(t, err, "tcplink: Config.Listen is missing")
	_, err = open(tcplink.Config{Self: 1, Listen: "127.0.0.1:0"}, node.Config{})
	require.ErrorIs(t, err, dmutex.ErrMisuse, "the record gives the numbers")
	_, err = open(tcplink.Config{Listen: "127.0.0.1:0"}, node.Config{Lease: 1})
	require.ErrorIs(t, err, dmutex.ErrMisuse)
	_, err = sqlnode.Open(t.Context(), nil, sqlstore.SQLite, "invoices", tcplink.Config{Listen: "127.0.0.1:0"}, node.Config{})
	require.EqualError(t, err, "sqlstore: the database is nil")
}
