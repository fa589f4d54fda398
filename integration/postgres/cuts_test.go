//go:build unix

package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
)

// A cutter leads to the server. It breaks a connection in place of passing on an answer, when it
// has passed on as many as answers says, unless that is negative.
type cutter struct {
	dir     string // of the socket
	server  string
	answers atomic.Int64
	cuts    atomic.Int64
	running sync.WaitGroup
}

func newCutter(t *testing.T, server string) *cutter {
	dir, err := os.MkdirTemp("", "cutter") // a short path, as a socket needs
	require.NoError(t, err)
	c := &cutter{dir: dir, server: filepath.Join(server, ".s.PGSQL.5432")}
	c.answers.Store(-1)
	l, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	require.NoError(t, err)
	c.running.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			c.running.Go(func() { c.join(near) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		c.running.Wait()
		os.RemoveAll(dir)
	})
	return c
}

func (c *cutter) join(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("unix", c.server)
	if err != nil {
		return
	}
	defer far.Close()
	var asking sync.WaitGroup
	defer asking.Wait()
	asking.Go(func() {
		carry(far, near, func() bool { return true })
		far.Close()
	})
	carry(near, far, func() bool {
		if c.answers.Add(-1) != -1 {
			return true
		}
		c.cuts.Add(1)
		return false
	})
	near.Close()
}

func carry(to, from net.Conn, pass func() bool) {
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		if n > 0 && !pass() {
			return
		}
		if _, failed := to.Write(buf[:n]); err != nil || failed != nil {
			return
		}
	}
}

// testCuts cuts connections in place of the first, second, or later answer of a Swap. Only one
// process writes, so each Swap that conflicts must have written nothing.
func testCuts(t *testing.T, p postgres) {
	for _, driver := range []string{"pgx", "postgres"} { // the second is that of lib/pq
		t.Run(driver, func(t *testing.T) {
			c := newCutter(t, p.Dir())
			db, err := sql.Open(driver, fmt.Sprintf("host=%s port=5432 user=postgres dbname=postgres sslmode=disable", c.dir))
			require.NoError(t, err)
			defer db.Close()
			s, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, "cuts"+driver)
			require.NoError(t, err)
			var written, unknown int
			for i := range 60 {
				_, rev, err := s.Load(t.Context())
				require.NoError(t, err)
				value := fmt.Sprint(i)
				c.answers.Store(int64(i % 6))
				_, failed := s.Swap(context.WithoutCancel(t.Context()), []byte(value), rev)
				c.answers.Store(-1)
				loaded, _, err := s.Load(t.Context())
				require.NoError(t, err)
				require.False(t, errors.Is(failed, store.ErrConflict) && string(loaded) == value, "Swap %d has written, and says: %v", i, failed)
				if failed == nil {
					written++
					require.Equal(t, value, string(loaded))
				} else {
					unknown++
				}
			}
			t.Logf("%d connections cut: %d Swaps succeeded, %d did not", c.cuts.Load(), written, unknown)
			require.NotZero(t, written)
			require.NotZero(t, unknown)
		})
	}
}
