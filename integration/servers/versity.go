//go:build unix

package servers

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Versity is a server of S3 that keeps objects as files, and checks signatures. Its bucket is "locks", and its user is "web" with
// the password "secret".
type Versity struct {
	Address string

	t       *testing.T
	program string
	dir     string
	p       *process
}

// StartVersity starts a server that runs until the test ends. It skips the test where the program is not installed.
func StartVersity(t *testing.T) *Versity {
	program, err := exec.LookPath("versitygw")
	if err != nil {
		t.Skip("versitygw is not installed, so s3store is tested with gofakes3 only (go install github.com/versity/versitygw/cmd/versitygw@v1.8.0)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	v := &Versity{Address: l.Addr().String(), t: t, program: program, dir: t.TempDir()}
	require.NoError(t, os.Mkdir(filepath.Join(v.dir, "locks"), 0o700))
	v.Start()
	return v
}

// Start starts a server that has crashed again, at its port.
func (v *Versity) Start() {
	const ready = "single account mode"
	v.p, _ = start(v.t, v.dir, nil, "KILL", ready, "sh", "-c", `exec "$@" >&2`, "sh",
		v.program, "--access", "web", "--secret", "secret", "--port", v.Address, "--quiet", "posix", ".")
	for began := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		c, err := net.Dial("tcp", v.Address)
		if err == nil {
			_ = c.Close()
			return
		}
		require.Less(v.t, time.Since(began), time.Minute)
	}
}

// Pause stops the server for a time.
func (v *Versity) Pause(d time.Duration) { v.p.pause(d) }

// Crash kills the server.
func (v *Versity) Crash() { v.p.stop() }

// Delete deletes an object, as an operator.
func (v *Versity) Delete(name string) {
	require.NoError(v.t, os.Remove(filepath.Join(v.dir, "locks", name)))
}
