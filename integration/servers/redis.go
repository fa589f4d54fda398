//go:build unix

package servers

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Redis is a server of Redis, or its Sentinel, at a port of its own.
type Redis struct {
	Address string

	t    *testing.T
	dir  string
	args []string
	p    *process
}

// StartRedis starts a server that keeps nothing on its disk, with these settings, such as --replicaof "127.0.0.1 6379".
// It runs until the test ends. StartRedis skips the test where Redis is not installed.
func StartRedis(t *testing.T, settings ...string) *Redis {
	return startRedis(t, t.TempDir(), append([]string{"--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0"}, settings...)...)
}

// StartSentinel starts a Sentinel of the master called "locks" at an address, with a quorum of two, which counts a server as
// down that is silent for a second.
func StartSentinel(t *testing.T, master string) *Redis {
	dir := t.TempDir()
	host, port, err := net.SplitHostPort(master)
	require.NoError(t, err)
	file := filepath.Join(dir, "sentinel.conf")
	require.NoError(t, os.WriteFile(file, []byte("sentinel monitor locks "+host+" "+port+" 2\nsentinel down-after-milliseconds locks 1000\nsentinel failover-timeout locks 3000\n"), 0o600))
	return startRedis(t, dir, append([]string{file, "--sentinel"}, "--protected-mode", "no")...)
}

func startRedis(t *testing.T, dir string, args ...string) *Redis {
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed, so redisstore is not tested (Debian: apt-get install redis-server)")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	_, port, _ := net.SplitHostPort(l.Addr().String())
	r := &Redis{Address: l.Addr().String(), t: t, dir: dir}
	r.args = append(args, "--port", port, "--bind", "127.0.0.1", "--logfile", "/dev/stderr")
	r.Start()
	return r
}

// Start starts a server that has crashed again, at its port.
func (r *Redis) Start() {
	ready := "Ready to accept connections"
	if strings.Contains(strings.Join(r.args, " "), "--sentinel") {
		ready = "+monitor master"
	}
	r.p, _ = start(r.t, r.dir, nil, "KILL", ready, "redis-server", r.args...)
}

// Crash kills the server.
func (r *Redis) Crash() { r.p.stop() }

// Pause stops the server for a time.
func (r *Redis) Pause(d time.Duration) { r.p.pause(d) }

// Stop stops the server until Continue is called.
func (r *Redis) Stop() { r.p.signal(syscall.SIGSTOP) }

// Continue continues a server that was stopped.
func (r *Redis) Continue() { r.p.signal(syscall.SIGCONT) }
