//go:build darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd

package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

const (
	alone  = syscall.LOCK_EX
	shared = syscall.LOCK_SH
	atOnce = syscall.LOCK_NB // or fail with taken

	taken = syscall.EWOULDBLOCK
)

// full are the errors of a disk, a quota or a limit that takes no more.
var full = []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}

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

// give gives a new file the owner and the group of another one, and this mode, as far as this process may.
func give(f *os.File, like fs.FileInfo, mode fs.FileMode) {
	owner := like.Sys().(*syscall.Stat_t)
	if f.Chown(int(owner.Uid), int(owner.Gid)) != nil && f.Chown(-1, int(owner.Gid)) != nil {
		mode &^= 0o070 // it is another group
	}
	_ = f.Chmod(mode)
}
