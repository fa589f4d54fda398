//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"io/fs"
	"os"
)

const alone, shared, atOnce = 0, 0, 0

var (
	taken error
	full  []error
)

func lock(*os.File, int) error { return errors.ErrUnsupported }

func syncDirectory(*os.Root) error { return errors.ErrUnsupported }

func give(*os.File, fs.FileInfo, fs.FileMode) {}
