//go:build !(darwin || dragonfly || freebsd || illumos || linux || netbsd || openbsd || windows)

package filestore

import (
	"errors"
	"io"
)

func tryLock(string) (io.Closer, error) { return nil, errors.ErrUnsupported }

func syncDir(string) error { return errors.ErrUnsupported }
