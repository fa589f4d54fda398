//go:build unix

package run

import (
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the one that controls this process, if there is one.
type terminal struct{ fd int }

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return &terminal{fd}
}

func (t *terminal) close() { _ = unix.Close(t.fd) }

// foreground returns the number of the process group that has the terminal, or -1.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// isTerminal reports whether a file is the terminal that controls this process.
func isTerminal(file any) bool {
	f, ok := file.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCGPGRP)
	return err == nil
}

// orphaned reports whether our process group is, so that no shell can continue it. The system does not let a terminal
// stop such a group: a shell in it that tries to stop itself goes on.
func orphaned() bool {
	cmd := exec.Command("/bin/sh", "-c", "kill -TSTP $$")
	if cmd.Start() != nil { // a system without a shell
		return true
	}
	pid := cmd.Process.Pid
	_ = cmd.Process.Release()
	var how syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &how, syscall.WUNTRACED, nil); err != syscall.EINTR {
			break
		}
	}
	if !how.Stopped() {
		return true
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for {
		if _, err := syscall.Wait4(pid, &how, 0, nil); err != syscall.EINTR {
			return false
		}
	}
}
