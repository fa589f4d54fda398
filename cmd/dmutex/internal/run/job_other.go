//go:build unix && !linux

package run

import "syscall"

// adopt does nothing: the first process of the system waits for orphans.
func adopt() {}

// dieWithParent does nothing: the command goes on.
func dieWithParent(*syscall.SysProcAttr) {}
