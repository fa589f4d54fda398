package demo

import (
	"errors"
	"io/fs"
	"os"
)

// occupy links marker to the process's own file, the badge, while the process is
// inside, and returns the function that removes the link. If another process is already
// inside, the two overlap, and leave does nothing. The link appears in one step, so it
// also shows which process was killed inside.
func occupy(marker, badge string) (leave func() error, overlap bool, err error) {
	switch err := os.Link(badge, marker); {
	case err == nil:
		return func() error { return os.Remove(marker) }, false, nil
	case errors.Is(err, fs.ErrExist):
		return func() error { return nil }, true, nil
	default:
		return nil, false, err
	}
}

// isInside reports whether the process with this badge is inside.
func isInside(marker, badge string) bool {
	at, err := os.Stat(marker)
	if err != nil {
		return false
	}
	its, err := os.Stat(badge)
	return err == nil && os.SameFile(at, its)
}

// vacate removes the marker of a process that was killed, and reports whether it was
// inside.
func vacate(marker, badge string) (inside bool, err error) {
	if !isInside(marker, badge) {
		return false, nil
	}
	return true, os.Remove(marker)
}
