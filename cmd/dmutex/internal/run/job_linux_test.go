package run

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/cmd/dmutex/internal/tool/tooltest"
)

// Orphans become children of run, which waits for them. The first process of a container
// might not wait.
func TestRunAdoptsOrphans(t *testing.T) {
	s := start(t, inDir(t), "fork", "trap", "say:ready", "caught", "parent", "end", "wait")
	require.Equal(t, "ready", s.line())
	s.goOn()
	require.Equal(t, "read on", s.line())
	require.Equal(t, "caught terminated", s.line())
	require.Equal(t, fmt.Sprint("parent ", s.cmd.Process.Pid), s.line())
	s.exits(0)
}

// An orphan in a session of its own is not waited for while it lives, but does not stay a zombie of run either.
func TestRunReapsOrphans(t *testing.T) {
	s := startCommand(t, inDir(t), "sh", "-c", `setsid sh -c 'sh -c "echo \$\$" &'; read on`)
	orphan, err := strconv.Atoi(s.line())
	require.NoError(t, err)
	require.Eventually(t, func() bool { return syscall.Kill(orphan, 0) == syscall.ESRCH }, tooltest.TooLong, time.Millisecond)
	s.goOn()
	s.exits(0)
}

// A command that leaves its process group keeps the lock, and gets the signals.
func TestRunMoves(t *testing.T) {
	flags := inDir(t)
	s := start(t, flags, "trap", "move", "say:moved", "caught", "wait", "exit:7")
	require.Equal(t, "moved", s.line())
	start(t, append(flags, "-n", "-E", "9"), "say:never").exits(9)
	s.signal(syscall.SIGTERM)
	require.Equal(t, "caught terminated", s.line())
	s.goOn()
	s.exits(7)
}

// A signal ends the wait: the command does not run, and others can still get the lock.
func TestRunSignalWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			flags := inDir(t)
			holder := start(t, flags, "say:in", "wait")
			require.Equal(t, "in", holder.line())
			waiter := start(t, flags, "say:never")
			waiter.waits()
			waiter.signal(sig)
			require.Contains(t, waiter.exits(died(sig)), "nothing was run: "+sig.String())
			holder.goOn()
			holder.exits(0)
			require.NoError(t, tooltest.Acquire(t, lockOf(t, flags)).Release())
		})
	}
}

// A run that is killed while it is first in the queue does not keep the next one waiting.
func TestRunKilledWhileWaiting(t *testing.T) {
	flags := append(inDir(t), "--lease=1h") // no run waits for it
	holder := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", holder.line())
	first := start(t, flags, "say:never")
	first.waits()
	next := start(t, flags, "say:next")
	require.NoError(t, first.cmd.Process.Kill())
	holder.goOn()
	require.Equal(t, "next", next.line())
	next.exits(0)
	holder.exits(0)
	require.NoError(t, tooltest.Acquire(t, lockOf(t, flags)).Release())
}

// waits waits until a run waits for the end of another process, by the lock on its life file.
func (s *started) waits() {
	s.t.Helper()
	files := fmt.Sprintf("/proc/%d/fd", s.cmd.Process.Pid)
	require.Eventually(s.t, func() bool {
		open, _ := os.ReadDir(files)
		for _, fd := range open {
			if name, _ := os.Readlink(filepath.Join(files, fd.Name())); strings.Contains(name, "/.lives/door.") {
				return true
			}
		}
		return false
	}, tooltest.TooLong, time.Millisecond)
}

// Over NATS a command dies with its run, and the next run gets the lock after the lease.
func TestNATSKilled(t *testing.T) {
	flags := append(inBucket(t), "--lease=1s")
	s := start(t, flags, "say:in", "wait")
	require.Equal(t, "in", s.line())
	require.NoError(t, s.cmd.Process.Kill())
	_, err := s.stdout.ReadString('\n')
	require.Equal(t, io.EOF, err, "the command is dead")
	next := start(t, flags, "say:next")
	require.Equal(t, "next", next.line())
	next.exits(0)
}
