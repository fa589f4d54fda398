package filestore_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/dmutex/dmutex/store/filestore"
)

// A Swap that waits for the lock on a file that is removed does not take it for the lock.
func TestLockRemoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "group")
	waiter, other := open(t, path), open(t, path)
	old := filestore.Lock(t, other)
	swapped := make(chan error, 1)
	go func() {
		_, err := waiter.Swap(t.Context(), []byte("1"), "")
		swapped <- err
	}()
	await := func(files int) { // until this process has the lock file open so many times
		for n := 0; n < files; runtime.Gosched() {
			select {
			case err := <-swapped:
				require.Fail(t, "two have the lock", "%v", err)
			default:
			}
			n = 0
			open, err := os.ReadDir("/proc/self/fd")
			require.NoError(t, err)
			for _, fd := range open {
				if name, _ := os.Readlink(fmt.Sprint("/proc/self/fd/", fd.Name())); name == path+".lock" {
					n++
				}
			}
		}
	}
	await(2) // the holder's and the waiter's
	require.NoError(t, os.Remove(path+".lock"))
	holder := filestore.Lock(t, other)
	require.NoError(t, old.Close())
	await(2) // of the new file
	require.NoError(t, holder.Close())
	require.NoError(t, <-swapped)
}
