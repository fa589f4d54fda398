package run

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// adopt makes this process the parent of its orphaned descendants, which it can
// then wait for. Otherwise they would be children of the first process of the
// container, which often does not wait for them, and the job would seem to live
// forever.
func adopt() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// dieWithParent makes the system kill the command if this process dies.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
