package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"unsafe"
)

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported}

var (
	kernel       = syscall.NewLazyDLL("kernel32.dll")
	lockFileEx   = kernel.NewProc("LockFileEx")
	getDriveType = kernel.NewProc("GetDriveTypeW")
)

const (
	alone  = 2 // LOCKFILE_EXCLUSIVE_LOCK
	shared = 0
	atOnce = 1 // LOCKFILE_FAIL_IMMEDIATELY, with taken

	taken = syscall.Errno(33) // ERROR_LOCK_VIOLATION
)

// lock waits until no other open file has the lock, or none has it alone.
func lock(f *os.File, how int) error {
	var at syscall.Overlapped // the first byte
	done, _, err := lockFileEx.Call(f.Fd(), uintptr(how), 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	if done == 0 {
		return os.NewSyscallError("LockFileEx", err)
	}
	return nil
}

// inheritable says that a lock ends with the process that has taken it.
const inheritable = false

// isLocalDirectory reports whether the directory is on a fixed drive of this machine.
func isLocalDirectory(dir *os.Root) (bool, error) {
	const fixed, ramDisk = 3, 6
	path, err := filepath.EvalSymlinks(dir.Name())
	if err != nil {
		return false, err
	}
	root, err := syscall.UTF16PtrFromString(filepath.VolumeName(path) + `\`)
	if err != nil {
		return false, err
	}
	kind, _, _ := getDriveType.Call(uintptr(unsafe.Pointer(root)))
	return kind == fixed || kind == ramDisk, nil
}

// syncDirectory does nothing, because Windows cannot sync a directory. NTFS keeps the rename
// in its journal.
func syncDirectory(*os.Root) error { return nil }
