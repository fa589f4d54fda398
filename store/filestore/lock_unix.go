//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"os"
	"syscall"
)

const (
	alone  = syscall.LOCK_EX
	shared = syscall.LOCK_SH
	atOnce = syscall.LOCK_NB // or fail with taken

	taken = syscall.EWOULDBLOCK
)

// lock waits until no other open file has the lock, or none has it alone.
func lock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if err != syscall.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}

// syncDirectory makes a rename in the directory durable.
func syncDirectory(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
