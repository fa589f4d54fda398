//go:build unix

package stores

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/store/storetest"
)

// binaries returns the directory with PostgreSQL's programs, and skips the test if
// there is none.
func binaries(t *testing.T) string {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	require.NoError(t, err)
	for _, dir := range append(dirs, debian...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir
		}
	}
	t.Skip("SKIPPED: PostgreSQL is not installed, so sqlstore is not tested on it (Debian: apt-get install postgresql)")
	return ""
}

// A postgres is a server with a directory of its own, reached by a Unix socket there.
type postgres struct {
	*testing.T
	bin, dir string
	as       *syscall.SysProcAttr
	process  *exec.Cmd
	life     io.Closer // the server runs until this is closed, also by our death
}

func startPostgres(t *testing.T) *postgres {
	p := &postgres{T: t, bin: binaries(t)}
	dir, err := os.MkdirTemp("", "postgres") // not below a directory that only root may enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	p.dir = dir
	if os.Getuid() == 0 { // as which PostgreSQL refuses to run
		u, err := user.Lookup("nobody")
		require.NoError(t, err)
		uid, err := strconv.Atoi(u.Uid)
		require.NoError(t, err)
		gid, err := strconv.Atoi(u.Gid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, uid, gid))
		p.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	initdb := p.command(filepath.Join(p.bin, "initdb"), "--pgdata=.", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(p.crash)
	p.start()
	return p
}

func (p *postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.as
	return cmd
}

// start returns when the server is ready.
func (p *postgres) start() {
	p.process = p.command("sh", "-c", `"$@" & cat; kill -QUIT $!; wait`, "sh",
		filepath.Join(p.bin, "postgres"), "-D", ".", "-k", p.dir, "-p", "5432", "-c", "listen_addresses=",
		"-c", "fsync=off") // the machine does not crash
	life, err := p.process.StdinPipe()
	require.NoError(p, err)
	p.life = life
	stderr, err := p.process.StderrPipe()
	require.NoError(p, err)
	require.NoError(p, p.process.Start())
	ready := make(chan bool)
	var logged []string
	go func() {
		defer close(ready)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			logged = append(logged, lines.Text())
			if strings.HasSuffix(lines.Text(), "database system is ready to accept connections") {
				ready <- true
				for lines.Scan() {
				}
				return
			}
		}
	}()
	if !<-ready {
		p.Fatalf("PostgreSQL does not start:\n%s", strings.Join(logged, "\n"))
	}
}

// crash ends the server at once. It writes nothing more.
func (p *postgres) crash() {
	if p.process != nil {
		require.NoError(p, p.life.Close())
		_ = p.process.Wait()
		p.process = nil
	}
}

func (p *postgres) dsn(user string) string {
	return fmt.Sprintf("host=%s port=5432 user=%s dbname=postgres", p.dir, user)
}

// connect returns a pool of a user, with settings such as "work_mem=4MB".
func (p *postgres) connect(t *testing.T, user string, settings ...string) *sql.DB {
	db, err := sql.Open("pgx", strings.Join(append([]string{p.dsn(user)}, settings...), " "))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func (p *postgres) open(t *testing.T, user, group string, settings ...string) *sqlstore.Store {
	s, err := sqlstore.Open(t.Context(), p.connect(t, user, settings...), sqlstore.PostgreSQL, group)
	require.NoError(t, err)
	return s
}

// canceling returns a store whose driver has the server cancel a statement when its context ends.
func (p *postgres) canceling(t *testing.T, group string) *sqlstore.Store {
	config, err := pgx.ParseConfig(p.dsn("postgres"))
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
	p := startPostgres(t)
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

	// The table needs no more privileges than the package says.
	t.Run("privileges", func(t *testing.T) {
		execute(t, admin, `CREATE ROLE app LOGIN`)
		_, err := sqlstore.Open(t.Context(), p.connect(t, "app"), sqlstore.PostgreSQL, "privileges")
		require.ErrorContains(t, err, "permission denied for table dmutex_groups")
		require.ErrorContains(t, err, "create table for PostgreSQL")
		execute(t, admin, `GRANT SELECT, INSERT, UPDATE ON dmutex_groups TO app`)
		s := p.open(t, "app", "privileges")
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.NoError(t, err)
	})

	t.Run("restored", func(t *testing.T) { restored(t, p.open(t, "postgres", "restored"), admin) })

	// A standby has only transactions of this kind.
	t.Run("standby", func(t *testing.T) {
		db := p.connect(t, "postgres", "default_transaction_read_only=on")
		_, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "a")
		require.ErrorContains(t, err, "cannot execute SELECT FOR UPDATE in a read-only transaction")
	})

	t.Run("crash", func(t *testing.T) {
		s := p.open(t, "postgres", "crash")
		rev, err := s.Swap(t.Context(), []byte("a"), "")
		require.NoError(t, err)
		p.crash()
		_, _, err = s.Load(t.Context())
		require.Error(t, err)
		_, err = s.Swap(t.Context(), []byte("b"), rev)
		require.Error(t, err)
		require.NotErrorIs(t, err, store.ErrConflict)
		p.start()
		value, last, err := s.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "a", string(value))
		require.Equal(t, rev, last)
	})

	// A primary that waits for its synchronous standby, which has been promoted, still answers
	// a plain read, but neither Load nor Swap. The last test, because the server stays so.
	t.Run("former primary", func(t *testing.T) {
		s, canceling := p.open(t, "postgres", "former"), p.canceling(t, "canceling")
		stores, revs := []store.Store{s, canceling}, make([]store.Revision, 2)
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
		for waiting := 0; waiting == 0; { // until the server has read its settings
			_ = briefly(func(ctx context.Context) error {
				_, err := admin.ExecContext(ctx, `CREATE TEMPORARY TABLE t (); DROP TABLE t`)
				return err
			})
			err := admin.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`).Scan(&waiting)
			require.NoError(t, err)
		}
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
