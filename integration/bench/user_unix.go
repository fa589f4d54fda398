//go:build rivals && unix

package main

import "syscall"

// asUser lets a process run as that user and group.
func asUser(id uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
}
