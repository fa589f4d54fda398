//go:build unix

package mariadb

import (
	"database/sql"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/store/storelock"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestMain(m *testing.M) { servers.Main(m, servers.MariaDB()) }

type maria struct{ *servers.Maria }

// connect returns a pool of a user, whose transactions have that level of isolation.
func (m maria) connect(t *testing.T, user, database, isolation string) *sql.DB {
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr, cfg.DBName = user, "unix", m.Socket(), database
	cfg.Logger = &mysql.NopLogger{} // it prints that the server has crashed
	if isolation != "" {
		cfg.Params = map[string]string{"tx_isolation": "'" + isolation + "'"}
	}
	connector, err := mysql.NewConnector(cfg)
	require.NoError(t, err)
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}

func (m maria) open(t *testing.T, group, isolation string) store.Store {
	s, err := sqlstore.Open(t.Context(), m.connect(t, "root", "locks", isolation), sqlstore.MySQL, group)
	require.NoError(t, err)
	return s
}

func execute(t *testing.T, db *sql.DB, statement string) {
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// One server serves these tests, because making its directory takes a while.
func TestMariaDB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	m := maria{servers.StartMariaDB(t)}
	admin := m.connect(t, "root", "", "")
	execute(t, admin, "CREATE DATABASE locks")

	t.Run("table", func(t *testing.T) { // processes that create it at once
		var opening sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			db := m.connect(t, "root", "locks", "")
			opening.Go(func() { _, errs[i] = sqlstore.Open(t.Context(), db, sqlstore.MySQL, "a") })
		}
		opening.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	})

	// The default, REPEATABLE-READ, and the level above and below it.
	for _, isolation := range []string{"", "SERIALIZABLE", "READ-COMMITTED"} {
		t.Run("store "+isolation, func(t *testing.T) {
			storetest.Run(t, func(t *testing.T, group string) store.Store { return m.open(t, isolation+group, isolation) })
		})
	}

	// The table needs no more privileges than the package says, and Open names those that are missing.
	t.Run("privileges", func(t *testing.T) {
		execute(t, admin, "CREATE USER app")
		execute(t, admin, "GRANT SELECT ON locks.dmutex_groups TO app")
		db := m.connect(t, "app", "locks", "")
		_, err := sqlstore.Open(t.Context(), db, sqlstore.MySQL, "privileges")
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, "grant INSERT, UPDATE on dmutex_groups to this user: ")
		execute(t, admin, "GRANT INSERT, UPDATE ON locks.dmutex_groups TO app")
		s, err := sqlstore.Open(t.Context(), db, sqlstore.MySQL, "privileges")
		require.NoError(t, err)
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.NoError(t, err)
		execute(t, admin, "REVOKE SELECT, INSERT, UPDATE ON locks.dmutex_groups FROM app")
		storetest.Unusable(t, s, rev)
	})

	// A table that is gone, and a database.
	t.Run("dropped", func(t *testing.T) {
		execute(t, admin, "CREATE DATABASE other")
		db := m.connect(t, "root", "other", "")
		s, err := sqlstore.Open(t.Context(), db, sqlstore.MySQL, "dropped")
		require.NoError(t, err)
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		execute(t, admin, "DROP TABLE other.dmutex_groups")
		storetest.Unusable(t, s, rev)
		execute(t, admin, "DROP DATABASE other")
		storetest.Unusable(t, s, rev)
		db.SetMaxIdleConns(-1)
		storetest.Unusable(t, s, rev)
	})

	// Open names the dialect that is right.
	t.Run("dialect", func(t *testing.T) {
		for _, dialect := range []sqlstore.Dialect{sqlstore.PostgreSQL, sqlstore.SQLite} {
			_, err := sqlstore.Open(t.Context(), m.connect(t, "root", "locks", ""), dialect, "a")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, "the database is MySQL: open it with sqlstore.MySQL, not ")
		}
	})

	// Users of four pools take turns while the server crashes three times.
	t.Run("crashes", func(t *testing.T) {
		users := servers.NewUsers(t)
		for range 4 {
			mutex, err := storelock.New(m.open(t, "crashes", ""), "x", 3*time.Second)
			require.NoError(t, err)
			users.Use("x", mutex)
		}
		for range 3 {
			users.More(50, "before a crash")
			m.Crash()
			m.Start()
		}
		users.More(50, "at the end")
		users.Stop()
	})

	t.Run("crash", func(t *testing.T) {
		s := m.open(t, "crash", "")
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		m.Crash()
		_, _, err = s.Load(t.Context())
		require.Error(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrConflict)
		m.Start()
		value, last, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)
	})
}
