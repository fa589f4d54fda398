//go:build unix

package servers

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// place makes the directory of a server that refuses to run as root, and returns the user that it runs as.
func place(t *testing.T, name string) (dir string, as *syscall.SysProcAttr) {
	dir, err := os.MkdirTemp("", name) // not below a directory that only root may enter
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	if os.Getuid() == 0 {
		u, err := user.Lookup("nobody")
		require.NoError(t, err)
		uid, err := strconv.Atoi(u.Uid)
		require.NoError(t, err)
		gid, err := strconv.Atoi(u.Gid)
		require.NoError(t, err)
		require.NoError(t, os.Chown(dir, uid, gid))
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	return dir, as
}

// A process is a server that runs until it is stopped. The death of the test stops it, too.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	life io.Closer
	pid  int // of the server itself, whose parent is a shell
}

// start starts a server in a directory, as another user if as is not nil. It returns the line
// of the server's log that has the text by which the server says that it is ready.
func start(t *testing.T, dir string, as *syscall.SysProcAttr, signal, ready, name string, args ...string) (*process, string) {
	cmd := exec.Command("sh", append([]string{"-c", `"$@" >/dev/null & echo $!; exec >/dev/null 2>&1; cat; kill -` + signal + ` $!; wait`, "sh", name}, args...)...)
	cmd.Dir, cmd.SysProcAttr = dir, as
	life, err := cmd.StdinPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	p := &process{t: t, cmd: cmd, life: life}
	t.Cleanup(p.stop)
	_, err = fmt.Fscan(stdout, &p.pid)
	require.NoError(t, err)
	found := make(chan string)
	var logged []string
	go func() {
		defer close(found)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			logged = append(logged, lines.Text())
			if strings.Contains(lines.Text(), ready) {
				found <- lines.Text()
				for lines.Scan() {
				}
				return
			}
		}
	}()
	line, ok := <-found
	if !ok {
		t.Fatalf("%s does not start:\n%s", name, strings.Join(logged, "\n"))
	}
	return p, line
}

// stop ends the server at once. It writes nothing more.
func (p *process) stop() {
	if p.cmd != nil {
		require.NoError(p.t, p.life.Close())
		_ = p.cmd.Wait()
		p.cmd = nil
	}
}

// signal sends a signal to the server.
func (p *process) signal(s syscall.Signal) { require.NoError(p.t, syscall.Kill(p.pid, s)) }

// pause stops the server for a time.
func (p *process) pause(d time.Duration) {
	p.signal(syscall.SIGSTOP)
	time.Sleep(d)
	p.signal(syscall.SIGCONT)
}
