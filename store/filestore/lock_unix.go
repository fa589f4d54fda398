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
func lock(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// lockShared waits until no other open file has the lock alone.
func lockShared(f *os.File) error { return flock(f, syscall.LOCK_SH) }

// tryLock reports whether it has got the lock, alone or shared.
func tryLock(f *os.File, alone bool) (bool, error) {
	how := syscall.LOCK_SH
	if alone {
		how = syscall.LOCK_EX
	}
	err := flock(f, how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

func flock(f *os.File, how int) error {
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
