//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"os"
)

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{errors.ErrUnsupported}

const alone, shared, atOnce, inheritable = 0, 0, 0, false

var taken error

func lock(*os.File, int) error { return errors.ErrUnsupported }

func syncDirectory(*os.Root) error { return errors.ErrUnsupported }
