package filestore

import (
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lock takes the lock of the file, as a process in the middle of a Swap has it.
func Lock(t *testing.T, path string) io.Closer {
	lock, err := tryLock(path + ".lock")
	require.NoError(t, err)
	require.NotNil(t, lock)
	return lock
}
