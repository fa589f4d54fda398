package demo

import (
	"errors"
	"io/fs"
	"os"
)

// occupy creates a file that exists while a process is inside, and returns how to
// leave. If another process is inside already the two overlap, and leave does
// nothing.
func occupy(marker string) (leave func() error, overlap bool, err error) {
	f, err := os.OpenFile(marker, os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case err == nil:
		return func() error { return os.Remove(marker) }, false, f.Close()
	case errors.Is(err, fs.ErrExist):
		return func() error { return nil }, true, nil
	default:
		return nil, false, err
	}
}
