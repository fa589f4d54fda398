//go:build unix

package postgres

import (
	"database/sql"
	"fmt"
	"net"
	"path/filepath"
	"testing"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store"
	"github.com/dmutex/dmutex/store/sqlstore"
	"github.com/dmutex/dmutex/store/storetest"
)

// testCuts breaks connections under two drivers.
func testCuts(t *testing.T, p postgres) {
	admin := p.connect(t, "postgres")
	for _, driver := range []string{"pgx", "postgres"} { // the second is that of lib/pq
		t.Run(driver, func(t *testing.T) {
			storetest.RunServer(t, filepath.Join(p.Dir(), ".s.PGSQL.5432"), func(t *testing.T, address, group string) store.Store {
				host, port, err := net.SplitHostPort(address)
				require.NoError(t, err)
				db, err := sql.Open(driver, fmt.Sprintf("host=%s port=%s user=postgres dbname=postgres sslmode=disable", host, port))
				require.NoError(t, err)
				t.Cleanup(func() { db.Close() })
				s, err := sqlstore.Open(t.Context(), db, sqlstore.PostgreSQL, driver+group)
				require.NoError(t, err)
				return s
			}, func(t *testing.T, group string) {
				execute(t, admin, "DELETE FROM dmutex_groups WHERE name = '"+driver+group+"'")
			})
		})
	}
}
