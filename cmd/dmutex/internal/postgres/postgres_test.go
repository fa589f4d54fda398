package postgres

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
)

// Errors say what is wrong and do not quote the password. A wrong URL is refused, and a server that does not answer may
// answer later. Records are tested in integration/postgres.
func TestOpen(t *testing.T) {
	_, err := Open("postgres://u:secret@h:port/d", time.Second)
	require.ErrorContains(t, err, "invalid port")
	require.NotContains(t, err.Error(), "secret")

	b, err := Open("postgres://u:secret@127.0.0.1:1/d#invoices", time.Second)
	require.NoError(t, err)
	defer b.Stop()
	require.Equal(t, "invoices", b.Name)
	_, _, err = b.Lock("l").Load(t.Context())
	require.ErrorContains(t, err, "127.0.0.1:1")
	require.NotContains(t, err.Error(), "secret")
	require.NotErrorIs(t, err, store.ErrUnusable)
}

// Which errors may pass.
func TestOutage(t *testing.T) {
	for code, passes := range map[string]bool{
		"53300": true, "57P03": true, "57P01": true, "25006": true, "08006": true, // too many clients, starts, ends, standby, connection
		"28P01": false, "28000": false, "3D000": false, "42704": false, "22023": false, // password, role, database, setting
	} {
		require.Equal(t, passes, outage(fmt.Errorf("open: %w", &pgconn.PgError{Code: code})), code)
	}
	require.True(t, outage(driver.ErrBadConn))
	require.False(t, outage(fmt.Errorf("server refused TLS connection")))
}

// A slow store answers a Load when it is told to.
type slow struct {
	store.Store
	done chan error
}

func (s slow) Load(ctx context.Context) ([]byte, store.Revision, error) {
	<-ctx.Done()
	s.done <- context.Cause(ctx)
	return nil, "", ctx.Err()
}

// A caller that gives up a Load gets an answer at once, and the Load itself goes on until the deadline.
func TestFrugal(t *testing.T) {
	s := slow{done: make(chan error, 1)}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	time.AfterFunc(time.Millisecond, cancel)
	_, _, err := frugal{s}.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.done)
	require.ErrorIs(t, <-s.done, context.DeadlineExceeded)
}
