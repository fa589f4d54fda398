//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"os"
)

// lasting are the errors that recur until an operator mends their cause.
var lasting = []error{errors.ErrUnsupported}

func lock(*os.File) error { return errors.ErrUnsupported }

func lockShared(*os.File) error { return errors.ErrUnsupported }

func tryLock(*os.File, bool) (bool, error) { return false, errors.ErrUnsupported }

const inheritable = false

func syncDirectory(*os.Root) error { return errors.ErrUnsupported }
