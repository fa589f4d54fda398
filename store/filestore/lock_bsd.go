//go:build darwin || dragonfly || freebsd

package filestore

import (
	"os"
	"syscall"
)

// isLocalDirectory reports whether the directory is on a file system that is mounted as local.
func isLocalDirectory(dir *os.Root) (bool, error) {
	const mntLocal = 0x1000 // MNT_LOCAL
	d, err := dir.Open(".")
	if err != nil {
		return false, err
	}
	defer d.Close()
	var fs syscall.Statfs_t
	if err := syscall.Fstatfs(int(d.Fd()), &fs); err != nil {
		return false, os.NewSyscallError("fstatfs", err)
	}
	return fs.Flags&mntLocal != 0, nil
}
