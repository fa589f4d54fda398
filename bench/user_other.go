//go:build rivals && !unix

package main

import "syscall"

// asUser changes nothing where nobody is root.
func asUser(uint32) *syscall.SysProcAttr { return nil }
