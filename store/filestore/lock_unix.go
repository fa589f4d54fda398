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

// inheritable says that a lock lasts until all processes that have inherited the file have
// closed it.
const inheritable = true

// syncDirectory makes a rename in the directory durable.
func syncDirectory(dir *os.Root) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
