//go:build unix

package servers

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// PostgreSQL returns the directory with the programs, or an error that says how to install
// them.
func PostgreSQL() (string, error) {
	var dirs []string
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	if path, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", err
	}
	for _, dir := range append(dirs, debian...) {
		if _, err := os.Stat(filepath.Join(dir, "initdb")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("PostgreSQL is not installed, so sqlstore is not tested on it (Debian: apt-get install postgresql)")
}

// A Postgres is a server with a directory of its own, reached by a Unix socket there.
type Postgres struct {
	t        *testing.T
	bin, dir string
	as       *syscall.SysProcAttr
	process  *process
}

// StartPostgres starts a server in a new directory, and ends it with the test. It skips the
// test where PostgreSQL is not installed.
func StartPostgres(t *testing.T) *Postgres {
	bin, err := PostgreSQL()
	if err != nil {
		t.Skip(err)
	}
	p := &Postgres{t: t, bin: bin}
	p.dir, p.as = place(t, "postgres")
	initdb := p.command(filepath.Join(p.bin, "initdb"), "--pgdata=.", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions")
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "%s", out)
	p.Start()
	return p
}

func (p *Postgres) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.SysProcAttr = p.dir, p.as
	return cmd
}

// Start returns when the server is ready.
func (p *Postgres) Start() {
	p.process, _ = start(p.t, p.dir, p.as, "QUIT", "database system is ready to accept connections",
		filepath.Join(p.bin, "postgres"), "-D", ".", "-k", p.dir, "-p", "5432", "-c", "listen_addresses=",
		"-c", "max_connections=200", "-c", "fsync=off") // the machine does not crash
}

// Crash ends the server at once. It writes nothing more.
func (p *Postgres) Crash() { p.process.stop() }

// Dir is where the server's socket is.
func (p *Postgres) Dir() string { return p.dir }

// DSN is how a user connects, for pgx.
func (p *Postgres) DSN(user string) string {
	return fmt.Sprintf("host=%s port=5432 user=%s dbname=postgres", p.dir, user)
}
