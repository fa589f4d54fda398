package run

import (
	"bytes"
	"fmt"
	"os"
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

// parentOf returns the number of a process's parent, 0 if that is outside of our container, or -1.
func parentOf(pid int) int {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // after the name of the program, which may have anything
	if len(fields) < 2 {
		return -1
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return -1
	}
	return parent
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
