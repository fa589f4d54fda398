package filestore

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// tryLock returns nil and no error if another call holds the lock. Closing the file
// releases it. The lock is a file that is opened without sharing.
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

// syncDir does nothing, because Windows cannot sync a directory. NTFS keeps the rename in
// its journal.
func syncDir(string) error { return nil }
