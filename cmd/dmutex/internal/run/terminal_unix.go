//go:build unix

package run

import (
	"os"
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

// orphaned reports whether our process group is, so that no shell can continue it: no process of it has a parent in
// another group of the same session. The system does not let a terminal stop such a group.
func orphaned() bool {
	session, _ := unix.Getsid(0)
	pid := os.Getppid()
	for ; pid > 0; pid = parentOf(pid) {
		if its, err := unix.Getsid(pid); err != nil || its != session {
			return true
		}
		if group, err := syscall.Getpgid(pid); err != nil || group != syscall.Getpgrp() {
			return false
		}
	}
	return pid == 0
}
