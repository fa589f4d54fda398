package filestore

import (
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/windows"
)

const (
	alone  = windows.LOCKFILE_EXCLUSIVE_LOCK
	shared = 0
	atOnce = windows.LOCKFILE_FAIL_IMMEDIATELY // with taken

	taken = windows.ERROR_LOCK_VIOLATION
)

// full are the errors of a disk or a quota that takes no more.
var full = []error{windows.ERROR_DISK_FULL, windows.ERROR_HANDLE_DISK_FULL, windows.ERROR_DISK_QUOTA_EXCEEDED}

// lock waits until no other open file has the lock, or none has it alone.
func lock(f *os.File, how int) error {
	var at windows.Overlapped // the first byte
	return os.NewSyscallError("LockFileEx", windows.LockFileEx(windows.Handle(f.Fd()), uint32(how), 0, 1, 0, &at))
}

// isLocalDirectory reports whether the directory is on a fixed drive of this machine.
func isLocalDirectory(dir *os.Root) (bool, error) {
	path, err := filepath.EvalSymlinks(dir.Name())
	if err != nil {
		return false, err
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil {
		return false, err
	}
	kind := windows.GetDriveType(root)
	return kind == windows.DRIVE_FIXED || kind == windows.DRIVE_RAMDISK, nil
}

// syncDirectory does nothing, because Windows cannot sync a directory. NTFS keeps the rename
// in its journal.
func syncDirectory(*os.Root) error { return nil }

// give does nothing: a new file has the permissions of its directory.
func give(*os.File, fs.FileInfo, fs.FileMode) {}
