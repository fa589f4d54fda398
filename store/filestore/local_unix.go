//go:build darwin || dragonfly || freebsd || linux

package filestore

import (
	"os"
	"runtime"
	"slices"
	"syscall"
)

// local are the types of file systems of Linux whose locks cover all processes that see a file. A
// type that is missing here may be local, but nobody has looked, or it may not be, such as
// those of FUSE.
var local = []uint32{
	0xef53,     // ext2, ext3, ext4
	0x58465342, // XFS
	0x9123683e, // Btrfs
	0x01021994, // tmpfs
	0x858458f6, // ramfs
	0x794c7630, // overlayfs, whose upper layer is local
	0xf2f52010, // F2FS
	0x2fc12fc1, // ZFS
	0xca451a4e, // bcachefs
	0x3153464a, // JFS
	0x3434,     // NILFS
	0x24051905, // UBIFS
}

// isLocalDirectory looks at the type of the file system, or, where the kernel knows, how it is mounted.
func isLocalDirectory(dir *os.Root) (bool, error) {
	var fs syscall.Statfs_t
	err := os.NewSyscallError("statfs", syscall.Statfs(dir.Name(), &fs))
	switch runtime.GOOS {
	case "android", "linux":
		return slices.Contains(local, uint32(fs.Type)), err
	}
	const mntLocal = 0x1000 // MNT_LOCAL
	return fs.Flags&mntLocal != 0, err
}
