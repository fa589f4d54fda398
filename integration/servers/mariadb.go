//go:build unix

package servers

import (
	"errors"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// MariaDB returns an error that says how to install it where it is missing.
func MariaDB() error {
	for _, program := range []string{"mariadbd", "mariadb-install-db"} {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New("MariaDB is not installed, so sqlstore is not tested on it (Debian: apt-get install mariadb-server)")
		}
	}
	return nil
}

// A Maria is a server with a directory of its own, reached by a Unix socket there.
type Maria struct {
	t       *testing.T
	dir     string
	as      *syscall.SysProcAttr
	process *process
}

// StartMariaDB starts a server in a new directory, and ends it with the test. It skips the test where MariaDB is
// not installed.
func StartMariaDB(t *testing.T) *Maria {
	if err := MariaDB(); err != nil {
		t.Skip(err)
	}
	m := &Maria{t: t}
	m.dir, m.as = place(t, "mariadb")
	install := exec.Command("mariadb-install-db", "--no-defaults", "--datadir="+m.dir, "--auth-root-authentication-method=normal", "--skip-test-db")
	install.Dir, install.SysProcAttr = m.dir, m.as
	out, err := install.CombinedOutput()
	require.NoError(t, err, "%s", out)
	m.Start()
	return m
}

// Start returns when the server is ready.
func (m *Maria) Start() {
	m.process, _ = start(m.t, m.dir, m.as, "KILL", "ready for connections", "mariadbd", "--no-defaults", "--datadir="+m.dir, "--socket="+m.Socket(), "--skip-networking")
}

// Crash ends the server at once. It writes nothing more.
func (m *Maria) Crash() { m.process.stop() }

// Socket is where the server listens.
func (m *Maria) Socket() string { return filepath.Join(m.dir, "socket") }
