//go:build unix && !linux

package run

import "syscall"

// adopt does nothing: the first process of the system waits for orphans.
func adopt() {}

// dieWithParent does nothing: the command goes on.
func dieWithParent(*syscall.SysProcAttr) {}

// parentOf returns -1: the parent of another process is not known.
func parentOf(int) int { return -1 }

// ignoredMask returns no signal: Go knows of SIGHUP and SIGINT.
func ignoredMask() uint64 { return 0 }
