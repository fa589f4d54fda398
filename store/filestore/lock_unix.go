//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported,
	syscall.ENOTDIR, syscall.ENOTEMPTY, syscall.EISDIR, syscall.ELOOP, syscall.EROFS, syscall.ENAMETOOLONG}

// lock waits until no other open file has the lock.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
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
