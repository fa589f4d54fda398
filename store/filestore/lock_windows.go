package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"unsafe"
)

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{fs.ErrPermission, fs.ErrNotExist, errors.ErrUnsupported}

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// lock waits until no other open file has the lock.
func lock(f *os.File) error {
	const exclusive = 2
	var at syscall.Overlapped // the first byte
	done, _, err := lockFileEx.Call(f.Fd(), exclusive, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	if done == 0 {
		return os.NewSyscallError("LockFileEx", err)
	}
	return nil
}

// syncDirectory does nothing, because Windows cannot sync a directory. NTFS keeps the rename
// in its journal.
func syncDirectory(*os.Root) error { return nil }
