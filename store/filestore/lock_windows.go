package filestore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// tryLock returns nil without an error if somebody has the lock. Closing gives it up. The
// lock is a file that is opened so that nobody else can open it.
func tryLock(path string) (io.Closer, error) {
	name, err := syscall.UTF16PtrFromString(path)
	if err != nil {
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	const shared = 0
	handle, err := syscall.CreateFile(name, syscall.GENERIC_READ|syscall.GENERIC_WRITE, shared, nil,
		syscall.OPEN_ALWAYS, syscall.FILE_ATTRIBUTE_NORMAL, 0)
	if err == nil {
		return os.NewFile(uintptr(handle), path), nil
	}
	const sharingViolation = syscall.Errno(32)
	if errors.Is(err, sharingViolation) {
		return nil, nil
	}
	return nil, &os.PathError{Op: "lock", Path: path, Err: err}
}

// syncDir does nothing: a directory of Windows cannot be synced. NTFS keeps the rename in
// its journal.
func syncDir(string) error { return nil }
