package run

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Orphans become children of run, which waits for them. In a container the first
// process may not.
func TestRunAdoptsOrphans(t *testing.T) {
	s := start(t, single, "fork", "trap", "say:ready", "caught", "parent", "end", "wait")
	require.Equal(t, "ready", s.line())
	s.goOn()
	require.Equal(t, "read on", s.line())
	require.Equal(t, "caught terminated", s.line())
	require.Equal(t, fmt.Sprint("parent ", s.cmd.Process.Pid), s.line())
	s.exits(0)
}

// A command that would read from a terminal reads nothing, and is not stopped.
func TestRunTerminal(t *testing.T) {
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer keyboard.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(keyboard.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetUint32(int(keyboard.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	terminal, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer terminal.Close()
	stdout, out := pipe(t)
	defer stdout.Close()
	cmd := exec.Command(os.Args[0], append(append([]string{"run"}, single...), "--", os.Args[0], "child", "wait", "say:end of input")...)
	cmd.Stdin, cmd.Stdout = terminal, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Signal(syscall.SIGTERM)
	out.Close()
	said, err := io.ReadAll(stdout)
	require.NoError(t, err)
	require.Equal(t, "end of input", strings.TrimSpace(string(said)))
}
