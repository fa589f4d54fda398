//go:build darwin || dragonfly || freebsd

package filestore

import (
	"os"
	"syscall"
)

// isLocalDirectory reports whether the directory is on a file system that is mounted as local.
func isLocalDirectory(dir *os.Root) (bool, error) {
	const mntLocal = 0x1000 // MNT_LOCAL
	var fs syscall.Statfs_t
	err := syscall.Statfs(dir.Name(), &fs)
	return fs.Flags&mntLocal != 0, os.NewSyscallError("statfs", err)
}
