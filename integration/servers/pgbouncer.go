//go:build unix

package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Pooler starts PgBouncer before the server, with transaction pooling and few connections, and returns how a
// user connects to it, for pgx. It ends with the test, and skips it where PgBouncer is not installed.
func (p *Postgres) Pooler(t *testing.T) (dsn func(user string) string) {
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		t.Skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	dir, as := place(t, "pgbouncer")
	config := filepath.Join(dir, "pgbouncer.ini")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `[databases]
postgres = host=%s port=5432 user=postgres
[pgbouncer]
unix_socket_dir = %s
listen_addr =
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 200
`, p.dir, dir), 0o644))
	start(t, dir, as, "KILL", "process up", "pgbouncer", config)
	return func(user string) string { return fmt.Sprintf("host=%s port=6432 user=%s dbname=postgres", dir, user) }
}
