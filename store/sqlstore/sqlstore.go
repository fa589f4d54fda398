// Package sqlstore keeps the record of a group in a row of a SQL database, through
// database/sql and the driver that the application already has.
//
// The table is dmutex_groups, with one row for each group. [Open] creates it if it does not
// exist:
//
//	CREATE TABLE dmutex_groups (name text PRIMARY KEY, revision text NOT NULL, value bytea NOT NULL)
//
// In SQLite, value is a blob. In MySQL, value is a mediumblob, and name and revision are
// varbinary(255) and varbinary(64). Once the table exists, the privileges SELECT, INSERT
// and UPDATE are enough.
//
// # What the database must promise
//
// A commit must be durable when it is acknowledged, and must not be undone by a failover:
//
//   - PostgreSQL: synchronous_commit is on or remote_apply, and fsync is on. Each standby that
//     may be promoted has confirmed each commit: synchronous_standby_names lists it, and waits
//     for all that it lists, as 'a' or 'FIRST 2 (a, b)' do. With 'ANY 1 (a, b)' the one that is
//     promoted may lack the last changes of the record, and so may any standby if
//     synchronous_commit is local, or an asynchronous one is promoted.
//     Nobody cancels a backend that waits for its standby, as pg_cancel_backend does: the server answers with success
//     then, and only a warning, which database/sql does not pass on, says that the standby may lack the change.
//     A statement_timeout does not end that wait.
//   - MySQL: tables of InnoDB with innodb_flush_log_at_trx_commit=1. A failover must lose
//     no acknowledged transaction: group replication with
//     group_replication_consistency=BEFORE_ON_PRIMARY_FAILOVER, or a single server.
//     Semi-synchronous replication is not enough, because it falls back to asynchronous.
//   - SQLite: one machine, with a local file. PRAGMA synchronous is FULL or EXTRA. Set a
//     busy timeout; without one, concurrent writers get errors.
//
// Load locks the row (SELECT ... FOR UPDATE). A standby of PostgreSQL refuses that, so if
// a load balancer connects a member to a standby, the member gets an error and renews no
// lease. A former primary whose synchronous standby has been promoted cannot finish the
// Load either, because it waits for the standby. MySQL refuses neither: connect to the
// primary only, and let the failover stop the old primary before it promotes a new one.
//
// A connection pooler, such as PgBouncer, may use session pooling. With transaction pooling, the driver must send
// each statement whole: pgx with default_query_exec_mode=exec or cache_describe in the
// connection string, lib/pq with binary_parameters=yes. By default pgx and lib/pq prepare a
// statement first, and the pooler may send the rest to another connection, which fails,
// with an error that wraps [store.ErrUnusable], or executes what another client has prepared there.
//
// The store takes a connection for each operation. While the application uses all those of a
// limited pool, no member renews its lease: give the store a [sql.DB] of its own.
// A driver that does not return when its context has ended is left behind, and the next operation takes another
// connection: lib/pq waits on a connection that has died silently until TCP gives it up, so give its pool no limit.
//
// The repository's tests run on PostgreSQL, also behind PgBouncer with pgx, on SQLite and on MariaDB.
package sqlstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dmutex/dmutex/store"
)

// A Dialect is the SQL of one kind of database.
type Dialect struct{ name, create, load, insert, update string }

// The dialects.
var (
	PostgreSQL = Dialect{
		name:   "PostgreSQL",
		create: `CREATE TABLE IF NOT EXISTS dmutex_groups (name text PRIMARY KEY, revision text NOT NULL, value bytea NOT NULL)`,
		load:   `SELECT value, revision FROM dmutex_groups WHERE name = $1 FOR UPDATE`,
		insert: `INSERT INTO dmutex_groups (value, revision, name) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`,
		update: `UPDATE dmutex_groups SET value = $1, revision = $2 WHERE name = $3 AND revision = $4`,
	}
	MySQL = Dialect{
		name:   "MySQL",
		create: `CREATE TABLE IF NOT EXISTS dmutex_groups (name varbinary(255) PRIMARY KEY, revision varbinary(64) NOT NULL, value mediumblob NOT NULL)`,
		load:   `SELECT value, revision FROM dmutex_groups WHERE name = ? FOR UPDATE`,
		insert: `INSERT IGNORE INTO dmutex_groups (value, revision, name) VALUES (?, ?, ?)`,
		update: `UPDATE dmutex_groups SET value = ?, revision = ? WHERE name = ? AND revision = ?`,
	}
	SQLite = Dialect{
		name:   "SQLite",
		create: `CREATE TABLE IF NOT EXISTS dmutex_groups (name text PRIMARY KEY, revision text NOT NULL, value blob NOT NULL)`,
		load:   `SELECT value, revision FROM dmutex_groups WHERE name = ?`,
		insert: `INSERT INTO dmutex_groups (value, revision, name) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`,
		update: `UPDATE dmutex_groups SET value = ?, revision = ? WHERE name = ? AND revision = ?`,
	}
)

// A record is a [store.Store] in a row.
type record struct {
	db      *sql.DB
	dialect Dialect
	group   string
}

// Open returns the store of a group, whose name has 1 to 255 bytes. It creates the table if
// it does not exist, and names the privileges that are missing. The database belongs to the
// application.
func Open(ctx context.Context, db *sql.DB, dialect Dialect, group string) (store.Store, error) {
	switch {
	case db == nil:
		return nil, errors.New("sqlstore: the database is nil")
	case dialect == Dialect{}:
		return nil, errors.New("sqlstore: choose a dialect, such as sqlstore.PostgreSQL")
	case len(group) < 1 || len(group) > 255:
		return nil, fmt.Errorf("sqlstore: group %q: the name must have 1 to 255 bytes", group)
	}
	s := &record{db, dialect, group}
	if _, err := soon(ctx, func() (int, error) { return 0, s.open(ctx) }); err != nil {
		return nil, s.fail(ctx, "open", err)
	}
	return s, nil
}

func (s *record) open(ctx context.Context) error {
	db, dialect := s.db, s.dialect
	err := db.PingContext(ctx)
	if err != nil { // a server that has too many clients is asked once
		return err
	}
	_, _, err = s.load(ctx)
	if err != nil && !denied(err) {
		// If processes create the table at the same time, some get an error although it now
		// exists.
		_, failed := db.ExecContext(ctx, dialect.create)
		if _, _, err = s.load(ctx); err != nil && failed != nil && failed.Error() != err.Error() {
			err = fmt.Errorf("%w; create the table: %w", err, failed)
		}
	}
	if err == nil && dialect == SQLite || err != nil && !denied(err) { // MySQL takes the first statements of SQLite
		if kind := s.kind(ctx); kind != "" && kind != dialect.name {
			wrong := fmt.Errorf("%w: the database is %s: open it with sqlstore.%[2]s, not %s", store.ErrUnusable, kind, dialect.name)
			if err != nil {
				wrong = fmt.Errorf("%w: %w", wrong, err)
			}
			return wrong
		}
	}
	if err == nil || denied(err) {
		var missing []string
		for _, p := range privileges {
			if _, failed := db.ExecContext(ctx, p.probe); failed != nil && denied(failed) {
				missing, err = append(missing, p.name), failed
			}
		}
		if len(missing) > 0 {
			err = fmt.Errorf("grant %s on dmutex_groups to this user: %w", strings.Join(missing, ", "), err)
		}
	}
	return err
}

// The privileges that a user needs, each with a statement that needs no other and changes
// nothing.
var privileges = []struct{ name, probe string }{
	{"SELECT", `SELECT name FROM dmutex_groups WHERE 1 = 0`},
	{"INSERT", `INSERT INTO dmutex_groups (name, revision, value) SELECT '', '', '' FROM (SELECT 1) AS nothing WHERE 1 = 0`},
	{"UPDATE", `UPDATE dmutex_groups SET revision = '' WHERE 1 = 0`},
}

// Load implements [store.Store].
func (s *record) Load(ctx context.Context) ([]byte, store.Revision, error) {
	type row struct {
		value []byte
		rev   store.Revision
	}
	got, err := soon(ctx, func() (row, error) {
		value, rev, err := s.load(ctx)
		return row{value, rev}, err
	})
	if err != nil {
		return nil, "", s.fail(ctx, "load", err)
	}
	return got.value, got.rev, nil
}

func (s *record) load(ctx context.Context) (value []byte, rev store.Revision, err error) {
	err = s.db.QueryRowContext(ctx, s.dialect.load, s.group).Scan(&value, &rev)
	if errors.Is(err, sql.ErrNoRows) {
		value, rev, err = nil, "", nil
	}
	return value, rev, whole(ctx, err)
}

// Swap implements [store.Store].
func (s *record) Swap(ctx context.Context, value []byte, rev store.Revision) (store.Revision, error) {
	// Random, so that it is new even if the row has been deleted or restored.
	next := store.Revision(rand.Text())
	// A driver that is left behind may still read the value, which is the caller's.
	statement, args := s.dialect.insert, []any{bytes.Clone(value), string(next), s.group}
	if rev != "" {
		statement, args = s.dialect.update, append(args, string(rev))
	}
	rows, err := soon(ctx, func() (int64, error) { return s.once(ctx, statement, args) })
	if err = whole(ctx, err); err == nil && rows == 0 {
		err = store.ErrConflict
	}
	if err != nil {
		return "", s.fail(ctx, "swap", err)
	}
	return next, nil
}

// once executes a statement, and returns how many rows it has changed. Methods of a [sql.DB]
// execute it again after driver.ErrBadConn, also if the connection broke when it had been
// executed. The second one changes nothing, and would be taken for a conflict.
func (s *record) once(ctx context.Context, statement string, args []any) (rows int64, err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	result, err := conn.ExecContext(ctx, statement, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// kind returns the name of the dialect that the database speaks, empty if it is none of these.
func (s *record) kind(ctx context.Context) string {
	var version string
	if s.db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version) == nil {
		return SQLite.name
	}
	switch err := s.db.QueryRowContext(ctx, `SELECT version()`).Scan(&version); {
	case err == nil && strings.HasPrefix(version, PostgreSQL.name):
		return PostgreSQL.name
	case err == nil && version != "" && version[0] >= '0' && version[0] <= '9': // also of MariaDB
		return MySQL.name
	}
	return ""
}

// grace is how long a driver may take to return after the context has ended. A node waits a second for the store.
const grace = 250 * time.Millisecond

// soon returns what the driver does, and leaves it behind if it does not return when the context has ended.
func soon[T any](ctx context.Context, call func() (T, error)) (got T, err error) {
	type outcome struct {
		got T
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		got, err := call()
		done <- outcome{got, err}
	}()
	var late <-chan time.Time
	for ended := ctx.Done(); ; ended = nil {
		select {
		case o := <-done:
			return o.got, o.err
		case <-ended:
			late = time.After(grace)
		case <-late:
			return got, fmt.Errorf("the driver has not returned: %w", ctx.Err())
		}
	}
}

// whole does not trust a success that comes after the end of the context. Some drivers ask the
// server to cancel the statement then, and PostgreSQL answers a commit that waits for its
// standby with success.
func whole(ctx context.Context, err error) error {
	if err == nil {
		err = ctx.Err()
	}
	return err
}

// fail names the group in an error, and marks an error that only an operator can mend.
func (s *record) fail(ctx context.Context, op string, err error) error {
	told := error(line{err})
	// The prepared statement of the driver is not there, is there already, or is another one.
	pooled := state(err) == "26000" || state(err) == "42P05" || strings.Contains(err.Error(), "bind message supplies")
	if pooled {
		told = fmt.Errorf("a connection pooler with transaction pooling? Package sqlstore says what that needs: %w", told)
	}
	if pooled || denied(err) || slices.Contains(lasting, state(err)) || slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(err.Error(), text) }) {
		told = fmt.Errorf("%w: %w", store.ErrUnusable, told)
	}
	if pool := s.db.Stats(); ctx.Err() != nil && pool.MaxOpenConnections > 0 && pool.InUse >= pool.MaxOpenConnections {
		told = fmt.Errorf("the application uses all connections of the pool, %d: give the store a sql.DB of its own: %w", pool.InUse, told)
	}
	return fmt.Errorf("sqlstore: %s group %q: %w", op, s.group, told)
}

// lasting are the codes of errors that recur until an operator mends their cause: no table, no
// such user or a wrong password, no such database.
var lasting = []string{"42P01", "28000", "28P01", "3D000"}

// texts are of such errors where the drivers tell no code: of SQLite, and for no table and no such database of MySQL.
var texts = []string{"readonly database", "no such table", "Error 1146", "Error 1049"}

// denied reports whether a privilege is missing. PostgreSQL tells a code; its text is in the
// language of the server. MySQL has that word in its text.
func denied(err error) bool {
	return state(err) == "42501" || strings.Contains(err.Error(), "denied")
}

// state returns the SQLSTATE of an error, as the drivers of PostgreSQL have it.
func state(err error) string {
	var coded interface{ SQLState() string }
	if !errors.As(err, &coded) {
		return ""
	}
	return coded.SQLState()
}

// A line is the error of a driver on one line. Some drivers have a line for each address.
type line struct{ error }

func (l line) Error() string { return strings.Join(strings.Fields(l.error.Error()), " ") }

func (l line) Unwrap() error { return l.error }
