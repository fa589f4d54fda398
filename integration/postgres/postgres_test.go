//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/integration/servers"
	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/store/storetest"
)

func TestMain(m *testing.M) {
	_, missing := servers.PostgreSQL()
	servers.Main(m, missing)
}

type postgres struct{ *servers.Postgres }

// connect returns a pool of a user, with settings such as "work_mem=4MB".
func (p postgres) connect(t *testing.T, user string, settings ...string) *sql.DB {
	db, err := sql.Open("pgx", strings.Join(append([]string{p.DSN(user)}, settings...), " "))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func (p postgres) open(t *testing.T, user, group string, settings ...string) store.Store {
	s, err := sqlstore.Open(t.Context(), p.connect(t, user, settings...), sqlstore.PostgreSQL, group)
	require.NoError(t, err)
	return s
}

// canceling returns a store whose driver has the server cancel a statement when its context ends.
func (p postgres) canceling(t *testing.T, group string) store.Store {
	config, err := pgx.ParseConfig(p.DSN("postgres"))
	require.NoError(t, err)
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Minute}
	}
	db := stdlib.OpenDB(*config)
	t.Cleanup(func() { db.Close() })
	s, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, group)
	require.NoError(t, err)
	return s
}

func execute(t *testing.T, db *sql.DB, statement string) {
	_, err := db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
}

// One server serves these tests, because making its directory takes a while.
func TestPostgreSQL(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	p := postgres{servers.StartPostgres(t)}
	admin := p.connect(t, "postgres")

	t.Run("table", func(t *testing.T) { // processes that create it at once
		var opening sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			db := p.connect(t, "postgres")
			opening.Go(func() { _, errs[i] = sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "a") })
		}
		opening.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
	})

	t.Run("store", func(t *testing.T) {
		storetest.Run(t, func(t *testing.T, group string) store.Store { return p.open(t, "postgres", group) })
	})

	// The table needs no more privileges than the package says, and Open names those that are
	// missing.
	t.Run("privileges", func(t *testing.T) {
		execute(t, admin, `CREATE ROLE app LOGIN`)
		db := p.connect(t, "app")
		for _, test := range []struct{ granted, missing string }{
			{"", "SELECT, INSERT, UPDATE"},
			{"SELECT", "INSERT, UPDATE"},
			{"SELECT, UPDATE", "INSERT"},
			{"INSERT, UPDATE", "SELECT"},
		} {
			execute(t, admin, `REVOKE ALL ON dmutex_groups FROM app`)
			if test.granted != "" {
				execute(t, admin, `GRANT `+test.granted+` ON dmutex_groups TO app`)
			}
			_, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "privileges")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.EqualError(t, err, `sqlstore: open group "privileges": store: unusable until this is mended: grant `+test.missing+
				` on dmutex_groups to this user: ERROR: permission denied for table dmutex_groups (SQLSTATE 42501)`)
		}
		execute(t, admin, `GRANT SELECT, INSERT, UPDATE ON dmutex_groups TO app`)
		s := p.open(t, "app", "privileges")
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.NoError(t, err)
		execute(t, admin, `REVOKE SELECT, INSERT ON dmutex_groups FROM app`)
		storetest.Unusable(t, s, rev)
	})

	// A missing table cannot be created without a privilege, and both errors are reported.
	t.Run("no table", func(t *testing.T) {
		execute(t, admin, `CREATE DATABASE empty`)
		execute(t, admin, `CREATE ROLE guest LOGIN`)
		db := p.connect(t, "guest", "database=empty")
		_, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "a")
		require.ErrorIs(t, err, store.ErrUnusable)
		require.ErrorContains(t, err, `relation "dmutex_groups" does not exist`)
		require.ErrorContains(t, err, "; create the table: ERROR: permission denied for schema public")
	})

	// Behind a pooler with transaction pooling, a statement that the driver has prepared may be
	// missing from its connection, or be there before. Here, both are made by hand.
	t.Run("pooler", func(t *testing.T) {
		one := func() *sql.DB {
			db := p.connect(t, "postgres")
			db.SetMaxOpenConns(1)
			return db
		}
		requirePooled := func(err error, code string) {
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, "a connection pooler with transaction pooling? Package sqlstore says what that needs: ERROR: prepared statement ")
			require.ErrorContains(t, err, code)
		}
		db := one()
		s, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "pooler")
		require.NoError(t, err)
		var name string
		find := `SELECT name FROM pg_prepared_statements WHERE statement LIKE '%FOR UPDATE'`
		require.NoError(t, db.QueryRowContext(t.Context(), find).Scan(&name))
		execute(t, db, `DEALLOCATE ALL`)
		_, _, err = s.Load(t.Context())
		requirePooled(err, "26000")

		db = one()
		execute(t, db, `PREPARE "`+name+`" AS SELECT 1`)
		_, err = sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "pooler")
		requirePooled(err, "42P05")
	})

	// Behind PgBouncer with transaction pooling, the store is as it is without, with the settings of pgx that the
	// package names.
	t.Run("PgBouncer", func(t *testing.T) {
		dsn := p.Pooler(t)
		for _, mode := range []string{"exec", "cache_describe"} {
			t.Run(mode, func(t *testing.T) {
				storetest.Run(t, func(t *testing.T, group string) store.Store {
					db, err := sql.Open("pgx", dsn("postgres")+" default_query_exec_mode="+mode)
					require.NoError(t, err)
					t.Cleanup(func() { db.Close() })
					s, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, mode+group)
					require.NoError(t, err)
					return s
				})
			})
		}
	})

	// Open names the dialect that is right.
	t.Run("dialect", func(t *testing.T) {
		for _, dialect := range []sqlstore.Dialect{sqlstore.MySQL, sqlstore.SQLite} {
			_, err := sqlstore.Open(t.Context(), admin, dialect, "a")
			require.ErrorIs(t, err, store.ErrUnusable)
			require.ErrorContains(t, err, "the database is PostgreSQL: open it with sqlstore.PostgreSQL, not ")
		}
	})

	// A missing server is reported once, in one line. The store is not unusable: the server may
	// come back.
	t.Run("no server", func(t *testing.T) {
		db := p.connect(t, "postgres", "port=5433")
		_, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "a")
		require.NotErrorIs(t, err, store.ErrUnusable)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "<nil>")
		require.Equal(t, 1, strings.Count(err.Error(), "failed to connect"), "%v", err)
	})

	// A standby has only read-only transactions.
	t.Run("standby", func(t *testing.T) {
		db := p.connect(t, "postgres", "default_transaction_read_only=on")
		_, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "a")
		require.ErrorContains(t, err, "cannot execute SELECT FOR UPDATE in a read-only transaction")
	})

	// Runs that start at once run their commands one after the other, and none fails. With
	// DMUTEX_LONG=1 there are a hundred runs, and -v shows how long they take.
	t.Run("jobs", func(t *testing.T) {
		many := 10
		if os.Getenv("DMUTEX_LONG") != "" {
			many = 100
		}
		dir := t.TempDir()
		tool := filepath.Join(dir, "dmutex")
		out, err := exec.Command("go", "build", "-tags", "postgres", "-o", tool, "github.com/dmutex/dmutex/cmd/dmutex").CombinedOutput()
		require.NoError(t, err, string(out))
		at := url.URL{Scheme: "postgres", User: url.User("postgres"), Path: "/postgres", RawQuery: url.Values{"host": {p.Dir()}}.Encode()}
		fences := make([]string, many)
		begin := time.Now()
		var running sync.WaitGroup
		for i := range fences {
			running.Go(func() {
				job := exec.Command(tool, "run", "--store", at.String(), "--lock", "job", "--", "sh", "-c", "mkdir inside && sleep 0.05 && echo $DMUTEX_FENCE && rmdir inside")
				job.Dir = dir
				out, err := job.CombinedOutput()
				if fences[i] = string(out); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		running.Wait()
		t.Logf("%d at once: %v", many, time.Since(begin))
		slices.Sort(fences)
		require.Len(t, slices.Compact(fences), many, "each has a fence of its own")
	})

	t.Run("runs", func(t *testing.T) { testRuns(t, p) })

	t.Run("cuts", func(t *testing.T) { testCuts(t, p) })

	t.Run("crash", func(t *testing.T) {
		s := p.open(t, "postgres", "crash")
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		p.Crash()
		_, _, err = s.Load(t.Context())
		require.Error(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrConflict)
		p.Start()
		value, last, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)
	})

	// A former primary, which waits for a standby that has been promoted, still answers a plain
	// read, but neither Load nor Swap. This test is the last, because the server stays like this.
	t.Run("former primary", func(t *testing.T) {
		s, canceling := p.open(t, "postgres", "former"), p.canceling(t, "canceling")
		timed := p.open(t, "postgres", "timed", "statement_timeout=50")
		stores, revs := []store.Store{s, canceling, timed}, make([]store.Revision, 3)
		for i, s := range stores {
			var err error
			revs[i], err = s.Swap(t.Context(), []byte("a"), "")
			require.NoError(t, err)
		}
		briefly := func(call func(ctx context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			return call(ctx)
		}
		admin := p.connect(t, "postgres")
		execute(t, admin, `ALTER SYSTEM SET synchronous_standby_names = 'promoted'`)
		execute(t, admin, `SELECT pg_reload_conf()`)
		ctx, cancel := context.WithCancel(t.Context())
		var writing sync.WaitGroup
		writing.Go(func() {
			for ctx.Err() == nil {
				_, _ = admin.ExecContext(ctx, `CREATE TEMPORARY TABLE t (); DROP TABLE t`)
			}
		})
		for waiting := 0; waiting == 0; { // until the server has read its settings
			err := admin.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting)
			require.NoError(t, err)
		}
		cancel()
		writing.Wait()
		var value []byte
		require.NoError(t, admin.QueryRowContext(t.Context(), `SELECT value FROM dmutex_groups WHERE name = 'former'`).Scan(&value))
		require.ErrorIs(t, briefly(func(ctx context.Context) error {
			_, _, err := s.Load(ctx)
			return err
		}), context.DeadlineExceeded)
		for i, s := range stores {
			require.ErrorIs(t, briefly(func(ctx context.Context) error {
				_, err := s.Swap(ctx, []byte("b"), revs[i])
				return err
			}), context.DeadlineExceeded)
		}
	})
}
