//go:build rivals && !unix

package main

import "syscall"

// asUser changes nothing: no user is root on these systems.
func asUser(uint32) *syscall.SysProcAttr { return nil }
