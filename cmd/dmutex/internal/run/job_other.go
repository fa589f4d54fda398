//go:build unix && !linux

package run

import "syscall"

// adopt does nothing: the first process of the system waits for orphans.
func adopt() {}

// dieWithParent does nothing: the command goes on.
func dieWithParent(*syscall.SysProcAttr) {}

// stopSelf stops this process.
func stopSelf() { _ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP) }

// ignoredMask returns no signal: Go knows of SIGHUP and SIGINT.
func ignoredMask() uint64 { return 0 }
