package run

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
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

// stopSelf stops this process. It returns when the process was continued: the signal goes to the thread of the caller.
// One to the process might stop it a little later.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGSTOP)
}

// ignoredMask returns the signals that this process ignores, as far as the Go runtime has left them alone: those of
// the terminal that stop a process.
func ignoredMask() uint64 {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
	line, _, _ := bytes.Cut(after, []byte("\n"))
	mask, _ := strconv.ParseUint(string(line), 16, 64)
	return mask
}
